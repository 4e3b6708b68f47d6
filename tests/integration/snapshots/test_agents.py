"""Agents that are asked without a crew, and agents of crews with a model of their own."""

import asyncio
import contextvars
import time
from typing import Any

import pytest
from pydantic import BaseModel

from runner import LLM, Agent, BaseLLM, CheckpointConfig, Crew, Task
from runner.agents.agent import LiteAgent
from runner.core import idempotency
from runner.core.errors import BadCrew, BadInput, GuardrailFailed, ModelError, TaskError, TaskTimeout
from runner.events import event_bus


class Model(BaseLLM):
    """Answers from a list."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("of-mine")
        self.answers, self.asked = list(answers), []

    def call(self, messages: Any, tools: Any = None, callbacks: Any = None, available_functions: Any = None) -> Any:
        self.asked.append([message["content"] for message in messages])
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def agent(*answers: Any, **fields: Any) -> Agent:
    return Agent(role="writer", goal="write", backstory="Well read.", llm=Model(*answers), **fields)


def told(*types: str) -> Any:
    """The types of all events of a block."""
    import contextlib

    @contextlib.contextmanager
    def listening() -> Any:
        seen: list[str] = []
        with event_bus.scoped_handlers():
            event_bus.on("*")(lambda source, event: seen.append(event.type))
            yield seen
            event_bus.flush()

    return listening()


# -- asked


def test_an_agent_answers():
    one = agent("I think.\nFinal Answer: owls")
    with told() as seen:
        answer = one.kickoff("What flies?")
    assert (answer.raw, str(answer), answer.agent_role) == ("owls", "owls", "writer")
    [[system, user]] = one.llm.asked
    assert system == "You are writer.\nWell read.\nYour goal: write"
    assert user == "What flies?"
    assert [m["role"] for m in answer.messages] == ["system", "user", "assistant"]
    assert seen == [
        "lite_agent_execution_started", "llm_call_started", "llm_call_completed", "lite_agent_execution_completed",
    ]  # fmt: skip
    assert asyncio.run(agent("hens").kickoff_async([{"role": "user", "content": "And?"}])).raw == "hens"


def test_an_answer_that_is_to_be_a_model():
    class Bird(BaseModel):
        name: str

    class Raw(BaseModel):
        raw: str

    assert agent('{"name": "owl"}').kickoff("?", response_format=Bird).pydantic == Bird(name="owl")
    assert agent(Bird(name="hen")).kickoff("?", response_format=Bird).pydantic == Bird(name="hen")
    with pytest.raises(TaskError, match="the answer of 'writer' is no Bird: the whole: Invalid JSON"):
        agent("owl", "an owl", "owls").kickoff("?", response_format=Bird)
    one = agent("An owl.", 'It is:\n```json\n{"name": "owl"}\n```')
    assert one.kickoff("?", response_format=Bird).pydantic == Bird(name="owl")
    assert "That answer does not fit: it is no Bird" in one.llm.asked[1][-1]
    lite = LiteAgent(role="writer", llm=Model('{"name": "owl"}', '{"raw": "hen"}'), response_format=Bird)
    assert lite.kickoff("?").pydantic == Bird(name="owl")
    assert lite.kickoff("?", response_format=Raw).pydantic == Raw(raw="hen")


class Endless(BaseLLM):
    """Answers never."""

    def call(self, messages: Any, tools: Any = None, callbacks: Any = None, available_functions: Any = None) -> Any:
        while True:
            time.sleep(0.005)


def endless(**fields: Any) -> Agent:
    return Agent(role="writer", llm=Endless("endless"), **fields)


def test_an_agent_that_takes_longer_than_it_may_fails():
    with told() as seen, pytest.raises(TaskTimeout, match=r"^it ran longer than its timeout of 0\.1 s$"):
        endless(max_execution_time=0.1).kickoff("?")
    assert (seen[0], seen[-1]) == ("lite_agent_execution_started", "lite_agent_execution_error")
    with pytest.raises(TaskTimeout):
        asyncio.run(endless(max_execution_time=0.1).akickoff("?"))


@pytest.mark.parametrize("own", [None, 60])
def test_the_time_of_the_task_around_an_agent_is_that_tasks(own):
    task = Task(name="t", run=lambda ctx: endless(max_execution_time=own).kickoff("?").raw, timeout=0.1)
    with pytest.raises(TaskTimeout, match=r"^it ran longer than its timeout of 0\.1 s$"):
        Crew(tasks=[task]).kickoff()


def test_an_agents_time_is_up_in_a_task_that_has_more():
    def run(ctx: Any) -> str:
        with pytest.raises(TaskTimeout, match=r"timeout of 0\.1 s"):
            endless(max_execution_time=0.1).kickoff("?")
        return "without it"

    assert Crew(tasks=[Task(name="t", run=run, timeout=60)]).kickoff().raw == "without it"


def test_what_is_raised_to_end_the_program_ends_the_kickoff():
    for end in (KeyboardInterrupt(), SystemExit(3)):
        with told() as seen, pytest.raises(type(end)):
            agent(end).kickoff("?")
        assert seen[-1] == "lite_agent_execution_error"


def test_a_kickoff_is_made_in_the_callers_context_and_leaves_nothing_of_its_own_there():
    mine = contextvars.ContextVar("mine", default="nothing")

    def check(output: Any) -> Any:
        mine.set(idempotency.origin())
        return True, output

    before = dict(contextvars.copy_context())
    assert agent("owls", guardrail=check).kickoff("?").raw == "owls"
    assert mine.get() not in ("", "nothing")
    after = contextvars.copy_context()
    assert [name for name in after if after[name] and after[name] != before.get(name)] == [mine]


def test_what_cannot_be_asked_is_said_in_a_line(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelError, match=r"^there is no key for the model 'gpt-4o-mini': set OPENAI_API_KEY"):
        Agent(role="r", llm="gpt-4o-mini").kickoff("?")
    with pytest.raises(ModelError, match="the agent 'r' has no model: give it llm="):
        Agent(role="r").kickoff("?")
    with pytest.raises(ModelError, match="the agent 'r' has 5, which cannot be called"):
        Agent(role="r", llm=5).kickoff("?")
    with pytest.raises(BadInput, match="input_files are not supported yet"):
        agent("a").kickoff("?", input_files={"a": "b"})


def test_a_models_key_is_not_in_its_repr():
    assert repr(LLM("gpt", api_key="sk-secret", base_url="http://u:p@h")) == "LLM(model='gpt')"


def test_an_agent_that_died_goes_on_when_it_is_asked_the_same(place):
    config = CheckpointConfig(location=place.location, on_events=["llm_call_started", "llm_call_completed"])
    one = agent(KeyboardInterrupt(), checkpoint=config)
    with pytest.raises(KeyboardInterrupt):
        one.kickoff("What flies?")
    [data] = place.all
    assert [m["role"] for m in data["entities"][0]["messages"]] == ["system", "user"]
    two = agent("owls")
    restored = CheckpointConfig(restore_from=place.at(-1), on_events=["lite_agent_execution_completed"])
    with told() as seen:
        assert two.kickoff("What flies?", from_checkpoint=restored).raw == "owls"
    assert "lite_agent_execution_started" not in seen, "it goes on under its first start"
    assert place.last["entities"][0]["output"]["raw"] == "owls"
    three = agent()
    again = CheckpointConfig(restore_from=place.at(-1))
    assert three.kickoff("What flies?", from_checkpoint=again).raw == "owls"
    assert three.llm.asked == [], "it was answered"


def test_a_restored_agent_that_is_asked_something_else_begins_a_new_conversation(place):
    agent("owls", checkpoint=CheckpointConfig(location=place.location, on_events=["llm_call_completed"])).kickoff(
        "one?"
    )
    other = agent("hens")
    assert other.kickoff("two?", from_checkpoint=CheckpointConfig(restore_from=place.at(-1))).raw == "hens"
    assert other.llm.asked[0][1:] == ["two?"]


def test_a_kickoff_that_a_subclass_overrides_is_called_by_names_on_what_is_restored(place):
    class Own(Agent):
        def kickoff(self, *, messages, **given):
            said.append((messages, sorted(name for name, value in given.items() if value is not None)))
            return super().kickoff(messages, **given)

    said: list[Any] = []
    one = Own(role="writer", goal="write", backstory="Well read.", llm=Model("owls"))
    one.checkpoint = CheckpointConfig(location=place.location, on_events=["lite_agent_execution_completed"])
    one.kickoff(messages="What flies?")
    assert (
        one.kickoff(messages="What flies?", from_checkpoint=CheckpointConfig(restore_from=place.at(-1))).raw == "owls"
    )
    assert said == [("What flies?", []), ("What flies?", ["from_checkpoint"]), ("What flies?", [])]


def test_from_checkpoint_and_fork_of_an_agent(place):
    config = CheckpointConfig(location=place.location, on_events=["lite_agent_execution_completed"])
    one = agent("owls", checkpoint=config)
    one.kickoff("What flies?")
    restored = Agent.from_checkpoint(CheckpointConfig(restore_from=place.at(-1)))
    assert restored is not one
    assert restored.llm is one.llm
    assert restored.kickoff_event_id == one.kickoff_event_id
    Agent.fork(CheckpointConfig(restore_from=place.at(-1)), branch="try")
    assert event_bus.runtime_state.branch == "try"


def test_the_config_without_a_restore_from_is_the_agents(place):
    one = agent("owls")
    one.kickoff("?", from_checkpoint=CheckpointConfig(location=place.location, on_events=["*"]))
    assert [data["trigger"] for data in place.all] == [
        "lite_agent_execution_started", "llm_call_started", "llm_call_completed", "lite_agent_execution_completed",
    ]  # fmt: skip


# -- in crews


def test_a_crew_of_agents():
    writer = agent("Final Answer: one", "two")
    tasks = [
        Task(name="a", description="Write on {topic}.", expected_output="A word on {topic}", agent=writer),
        Task(name="b", description="Go on.", agent=writer),
    ]
    with told() as seen:
        result = Crew(tasks=tasks, agents=[writer]).kickoff({"topic": "owls"})
    assert [(o.raw, o.agent) for o in result.tasks_output] == [("one", "writer"), ("two", "writer")]
    first, second = writer.llm.asked
    assert first[1] == "Write on owls.\n\nThe answer should be: A word on owls"
    assert second[1] == "Go on.\n\nYou may build on this:\n\none"
    assert seen[1:7] == [
        "task_started", "agent_execution_started", "llm_call_started", "llm_call_completed",
        "agent_execution_completed", "task_completed",
    ]  # fmt: skip


def test_agents_without_a_model_that_can_be_called_are_refused_before_anything_starts(monkeypatch):
    for llm, why in ((None, "has no model: give it llm="), (object(), "has <object object .* which cannot be called")):
        crew = Crew(tasks=[Task(name="a", agent=Agent(role="r", llm=llm))])
        with pytest.raises(BadCrew, match=f"the agent 'r' of task 'a' {why}"):
            crew.kickoff()
    with pytest.raises(BadCrew, match="task 'a' has neither run= nor agent=: give it one of them"):
        Crew(tasks=[Task(name="a")]).kickoff()
    with pytest.raises(BadCrew, match="task 'a': 5 is not a tool"):
        Crew(tasks=[Task(name="a", agent=agent(), tools=[5])]).kickoff()


def test_a_guardrail_asks_again_and_then_fails():
    writer = agent("bad", "worse", "good")
    task = Task(name="a", description="Write.", agent=writer, guardrail=lambda o: (o.raw == "good", f"{o.raw} it is"))
    assert Crew(tasks=[task]).kickoff().raw == "good it is"
    assert writer.llm.asked[2][2:] == [
        "bad", "That answer cannot be taken: bad it is\n\nGive a better one.",
        "worse", "That answer cannot be taken: worse it is\n\nGive a better one.",
    ]  # fmt: skip
    tries: list[int] = []

    def never(output: Any) -> tuple[bool, str]:
        tries.append(1)
        return False, "no"

    crew = Crew(tasks=[Task(name="b", run=lambda ctx: "x", guardrails=[never], guardrail_max_retries=2)])
    with pytest.raises(
        GuardrailFailed, match=r"^the output of task 'b' did not pass its guardrail, 3 times; last: no$"
    ):
        crew.kickoff()
    assert len(tries) == 3
    with pytest.raises(BadCrew, match="the guardrail of task 'c' must be a function of the output"):
        Crew(tasks=[Task(name="c", run=lambda ctx: "x", guardrail="be nice")]).kickoff()


def test_what_a_guardrail_gives_is_the_output():
    class Count(BaseModel):
        n: int

    def crew(guardrail: Any, **fields: Any) -> Crew:
        return Crew(tasks=[Task(name="a", run=lambda ctx: '{"n": 1}', guardrail=guardrail, **fields)])

    assert crew(lambda o: (True, "other")).kickoff().raw == "other"
    assert crew(lambda o: (True, None)).kickoff().raw == '{"n": 1}'
    assert crew(lambda o: (True, {"n": 2}), output_pydantic=Count).kickoff().pydantic == Count(n=2)
    assert crew(lambda o: (True, o), output_pydantic=Count).kickoff().pydantic == Count(n=1)


def test_a_task_in_flight_with_its_agents_conversation_goes_on(place, pairs_up):
    """Dead while the model was at work: the agent goes on under its start, the call that was lost has an end."""

    def crew(one: Agent) -> Crew:
        return Crew(tasks=[Task(name="a", description="Write.", agent=one)])

    events: Any = ["llm_call_started", "crew_kickoff_completed"]
    config = CheckpointConfig(location=place.location, on_events=events)
    with pytest.raises(KeyboardInterrupt):
        crew(agent(KeyboardInterrupt())).kickoff(from_checkpoint=config)
    assert place.last["entities"][0]["tasks"][0]["messages"][1]["content"] == "Write."
    crew(agent("done")).kickoff(from_checkpoint=config.model_copy(update={"restore_from": place.at(0)}))
    counted = pairs_up(place.last)
    assert counted["task_started", "a"] == counted["agent_execution_started", "a"] == 1
    assert counted["llm_call_started", "a"] == 2
    assert counted["llm_call_failed", "a"] == counted["llm_call_completed", "a"] == 1


def test_an_exception_of_a_model_is_retried_as_the_task_says():
    one = agent(ConnectionError("down"), "up")
    assert Crew(tasks=[Task(description="Go.", agent=one, max_retries=1, retry_delay=0)]).kickoff().raw == "up"
