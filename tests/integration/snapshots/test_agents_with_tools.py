"""Agents that ask a model over HTTP and use tools, in this process: against the model server, which counts."""

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from runner import LLM, Agent, BaseLLM, CheckpointConfig, Crew, Task, tool
from runner.agents.steps import AgentAction, AgentFinish
from runner.agents.tools import idempotency_key
from runner.core.errors import BadCrew, ModelError, TaskError, TaskTimeout
from runner.events import event_bus
from runner.testing import Answer, Call, ModelRequest, ModelServer, Rule

KEY = "sk-secret-of-mine-1234"


@pytest.fixture
def server():
    with ModelServer() as one:
        yield one


@pytest.fixture
def agent(server):
    def make(*tools: Any, llm: dict[str, Any] | None = None, **fields: Any) -> Agent:
        given = {"base_url": server.url, "api_key": KEY, "max_retries": 0, **(llm or {})}
        return Agent(role="writer", goal="write", llm=LLM("openai/m", **given), tools=list(tools), **fields)

    return make


@pytest.fixture
def told():
    """The types of all events, and the events."""
    events: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on("*")(lambda source, event: events.append(event))
        yield events
        event_bus.flush()


def types(events: list[Any]) -> list[str]:
    event_bus.flush()
    return [event.type for event in sorted(events, key=lambda event: event.emission_sequence)]


@tool
def double(x: int) -> int:
    """Doubles a number."""
    return 2 * x


def results(request: ModelRequest) -> Answer | list[Call]:
    """Two calls at a time, twice, then what came of them."""
    if request.turn < 2:
        return [Call("double", {"x": request.turn}), Call("double", {"x": 10 + request.turn})]
    return Answer("got " + " ".join(request.results), usage=(100, 7))


# -- the loop


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_uses_tools_side_by_side_and_answers(agent, server, told, stream):
    server.use(results)
    steps: list[Any] = []
    one = agent(double, llm={"stream": stream}, step_callback=steps.append)
    answer = one.kickoff("Go.")
    assert answer.raw == "got 0 20 2 22"
    assert (answer.usage_metrics["prompt_tokens"], server.paid) == (server.tokens[0], 3)
    [*used, last] = steps
    assert [(s.tool, s.tool_input, s.result) for s in used[:2] if isinstance(s, AgentAction)] in (
        [("double", '{"x": 0}', "0"), ("double", '{"x": 10}', "20")],
        [("double", '{"x": 10}', "20"), ("double", '{"x": 0}', "0")],
    )
    assert last == AgentFinish(thought="", output=answer.raw, text=answer.raw)
    seen = types(told)
    assert (seen[0], seen[-1]) == ("lite_agent_execution_started", "lite_agent_execution_completed")
    assert [seen.count(f"llm_call_{end}") for end in ("started", "completed")] == [3, 3]
    assert [seen.count(f"tool_usage_{end}") for end in ("started", "finished")] == [4, 4]
    [*_, completed] = [event for event in told if event.type == "llm_call_completed"]
    assert (completed.usage["completion_tokens"], completed.agent_role, completed.response) == (7, "writer", answer.raw)
    assert KEY not in "".join(map(str, (event.stored() for event in told)))
    assert asyncio.run(one.kickoff_async("Again.")).raw == answer.raw


def test_what_goes_wrong_with_tools_is_told_to_the_model(agent, server, told):
    @tool
    def fails(x: int) -> int:
        """Fails."""
        raise ConnectionError(f"cannot reach\nthe shop with {KEY}")

    calls = [Call("nothing", {}), Call("double", "{"), Call("double", {"x": "many"}), Call("fails", {"x": 1})]
    server.use([Rule(None, calls, "I see.")])
    assert agent(double, fails).kickoff("Go.").raw == "I see."
    missing, broken, unfit, raised = server.log[-1].results
    assert missing == "Error: there is no tool 'nothing'; there are: double, fails"
    assert broken.startswith("Error: the arguments are not JSON: ")
    assert (
        unfit
        == "Error: the arguments do not fit: x: Input should be a valid integer, unable to parse string as an integer"
    )
    assert raised == "Error: ConnectionError: cannot reach the shop with ***"
    seen = types(told)
    assert seen.count("tool_selection_error") == seen.count("tool_usage_error") == 1
    assert seen.count("tool_validate_input_error") == 2


def test_after_max_iter_the_model_has_to_answer(agent, server):
    server.use(lambda r: Call("double", {"x": r.turn}) if r.tools else "enough")
    assert agent(double, max_iter=2).kickoff("Go.").raw == "enough"
    assert server.paid == 3
    assert "Give your best final answer now" in server.log[-1].last
    server.use(lambda r: Answer(calls=[Call("double", {"x": 1})]))
    with pytest.raises(ModelError, match=r"^the model 'openai/m' of the agent 'writer' gave an empty answer 3 times$"):
        agent(double, max_iter=1).kickoff("Go.")


def test_tools_whose_result_is_the_answer_and_tools_that_run_out(agent, server):
    @tool(result_as_answer=True, max_usage_count=1)
    def look() -> str:
        """Looks."""
        return "42"

    server.use([Rule(None, [Call("look")], "not asked")])
    assert agent(look).kickoff("Go.").raw == "42"
    look.result_as_answer = False
    server.use([Rule(None, [Call("look")], [Call("look")], "done")])
    assert agent(look).kickoff("Go.").raw == "done"
    assert server.log[-1].results == ["42", "Error: the tool 'look' was used 1 times, and may not be used again"]


def test_a_model_of_ones_own_that_knows_of_no_tools():
    class Model(BaseLLM):
        asked: list[Any] = []

        def call(self, messages: Any, **_: Any) -> str:
            self.asked.append(messages)
            return 'I count.\nAction: double\nAction Input: {"x": 4}' if len(self.asked) == 1 else "Final Answer: 8"

    model = Model("of-mine")
    assert Agent(role="r", llm=model, tools=[double]).kickoff("Go.").raw == "8"
    assert "- double: Doubles a number." in model.asked[0][0]["content"]
    assert model.asked[1][-1] == {"role": "user", "content": "Observation: 8"}


def test_a_model_of_ones_own_that_calls_tools():
    class Model(BaseLLM):
        def supports_function_calling(self) -> bool:
            return True

        def call(self, messages: Any, tools: Any = None, **_: Any) -> Any:
            if messages[-1]["role"] == "tool":
                return f"it is {messages[-1]['content']}"
            return [{"function": {"name": tools[0]["function"]["name"], "arguments": {"x": 4}}}]

    assert Agent(role="r", llm=Model("of-mine"), tools=[double]).kickoff("Go.").raw == "it is 8"


# -- answers


class Bird(BaseModel):
    name: str


def test_structured_output_is_corrected_and_then_fails(agent, server):
    server.use([Rule(None, "An owl.", '```json\n{"name": "owl"}\n```')])
    for form in ("output_pydantic", "output_json"):
        result = Crew(tasks=[Task(description="Which?", agent=agent(), **{form: Bird})]).kickoff()
        assert (result.raw, result.json_dict) == ('{"name":"owl"}', {"name": "owl"})
    assert result.pydantic == Bird(name="owl")
    assert "fits this schema" in server.log[0].last
    assert "That answer does not fit: it is no Bird" in server.log[1].last
    server.use("An owl.")
    with pytest.raises(TaskError, match=r"^the answer of 'writer' is no Bird: the whole: Invalid JSON"):
        Crew(tasks=[Task(description="Which?", agent=agent(), output_pydantic=Bird)]).kickoff()


def test_guardrails_in_words_are_judged_by_the_agents_model(agent, server, told):
    def script(request: ModelRequest) -> str:
        if "The rule:\nno hens" in request.text:
            bad = "hens" in request.last.partition("The text:")[2]
            return f'{{"valid": {str(not bad).lower()}, "feedback": "there are hens"}}'
        return "owls" if "there are hens" in request.last else "hens"

    server.use(script)
    task = Task(description="Write.", agent=agent(), guardrails=["no hens", lambda o: (True, f"{o.raw}!")])
    assert Crew(tasks=[task]).kickoff().raw == "owls!"
    assert server.paid == 4
    seen = types(told)
    assert seen.count("llm_guardrail_started") == seen.count("llm_guardrail_completed") == 3
    with pytest.raises(BadCrew, match="the guardrail of task 'a' must be a function of the output"):
        Crew(tasks=[Task(name="a", run=lambda ctx: "x", guardrail="be nice")]).kickoff()


def test_output_file_and_callbacks(agent, server, tmp_path):
    server.use("owls")
    done: list[Any] = []
    task = Task(description="?", agent=agent(), output_file=str(tmp_path / "a" / "{topic}.md"), callback=done.append)
    Crew(tasks=[task], step_callback=done.append).kickoff({"topic": "birds"})
    assert (tmp_path / "a" / "birds.md").read_text() == "owls"
    assert [type(one).__name__ for one in done] == ["AgentFinish", "TaskOutput"]


def test_a_context_window_is_respected(agent, server):
    @tool
    def fetch(n: int) -> str:
        """Gives a lot."""
        return str(n) * 20_000

    def script(request: ModelRequest) -> Answer | Call:
        if request.turn < 3:
            return Call("fetch", {"n": request.turn})
        return Answer(str(max(len(one) for one in request.results)))

    server.use(script)
    assert int(agent(fetch, llm={"context_window_size": 6000}).kickoff("Go.").raw) < 20_000
    assert (
        int(agent(fetch, llm={"context_window_size": 6000}, respect_context_window=False).kickoff("Go.").raw) == 20_000
    )
    server.use(lambda r: Answer("maximum context length", status=400) if len(r.text) > 9000 else script(r))
    assert int(agent(fetch).kickoff("Go.").raw) < 9000, "a model that says so itself"
    with pytest.raises(ModelError, match="accepts less input than it was sent"):
        agent(fetch, respect_context_window=False).kickoff("Go.")


# -- going on


def test_an_interrupted_agent_goes_on_where_it_was(agent, server, place):
    """Dead between two tools of a round: what was answered is not asked again, and a tool that was used is not used."""
    server.use(results)
    used: list[int] = []
    keys: list[str] = []
    dies = [True]

    @tool("double")
    def dying(x: int) -> int:
        """Doubles."""
        keys.append(idempotency_key())
        if x == 11 and dies.pop():
            raise KeyboardInterrupt
        used.append(x)
        return 2 * x

    def crew() -> Crew:
        return Crew(tasks=[Task(name="a", description="Go.", agent=agent(dying))])

    events: Any = ["tool_usage_finished", "tool_usage_error"]
    with pytest.raises(KeyboardInterrupt):
        crew().kickoff(from_checkpoint=CheckpointConfig(location=place.location, on_events=events))
    dies.append(False)
    result = crew().kickoff(from_checkpoint=CheckpointConfig(restore_from=place.at(-1)))
    assert result.raw == "got 0 20 2 22"
    assert sorted(used) in ([0, 1, 10, 11], [0, 1, 1, 10, 11])  # the other one may have been at work when it died
    assert server.paid == 3
    assert len({key for key in keys if key.endswith(":a:4")}) == 1, "the same key for the same use"
    assert len(set(keys)) == 4


def test_a_task_that_is_tried_again_pays_for_nothing_twice(agent, server):
    server.use(results)
    tries: list[int] = []

    def once(output: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("down")
        return True, output

    task = Task(description="Go.", agent=agent(double), guardrail=once, max_retries=1, retry_delay=0)
    assert Crew(tasks=[task]).kickoff().raw == "got 0 20 2 22"
    assert server.paid == 3


@pytest.mark.parametrize("side_by_side", [1, 2])
def test_a_tool_or_a_model_that_hangs_is_left_behind_when_the_time_is_up(agent, server, side_by_side):
    let_go = threading.Event()

    @tool
    def hang(x: int) -> str:
        """Hangs."""
        let_go.wait(60)
        return "late"

    server.use([Rule(None, [Call("hang", {"x": i}) for i in range(side_by_side)])])
    task = Task(name="a", description="Go.", agent=agent(hang), timeout=1)
    with pytest.raises(TaskTimeout, match=r"it ran longer than its timeout of 1 s"):
        Crew(tasks=[task]).kickoff()
    let_go.set()
    server.use(Answer("late", delay=60))
    with pytest.raises(TaskTimeout):
        Crew(tasks=[Task(name="a", description="Go.", agent=agent(), timeout=1)]).kickoff()
    limited = Agent(role="r", llm=agent().llm, tools=[double], max_execution_time=30)
    server.use(results)
    assert Crew(tasks=[Task(description="Go.", agent=limited)]).kickoff().raw == "got 0 20 2 22"


def test_a_model_by_name_and_the_environment(agent, server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.use("hi")
    assert Agent(role="r", llm="openai/one").kickoff("?").raw == "hi"
    with pytest.raises(BadCrew, match="set OPENAI_MODEL_NAME"):
        Crew(tasks=[Task(name="a", description="?", agent=Agent(role="r"))]).kickoff()
    monkeypatch.setenv("OPENAI_MODEL_NAME", "openai/two")
    assert Crew(tasks=[Task(name="a", description="?", agent=Agent(role="r"))]).kickoff().raw == "hi"
    assert [request.model for request in server.log] == ["one", "two"]


def test_no_key_in_what_is_said_or_kept(agent, server, place):
    server.use(Answer(f"wrong key {KEY}", status=401))
    config = CheckpointConfig(location=place.location, on_events=["*"])
    with pytest.raises(ModelError, match=r"refused: 401: wrong key \*\*\*"):
        Crew(tasks=[Task(name="a", description="?", agent=agent())]).kickoff(from_checkpoint=config)
    assert KEY not in str(place.all)
