"""Tasks that agents do, on workers: with a model of the crew's own, its answers are steps like any other."""

import textwrap
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer, Rule

pytestmark = pytest.mark.timeout(120)

CREW = """
    from runner import Agent, BaseLLM, ConditionalTask

    class Model(BaseLLM):
        def call(self, messages, tools=None, callbacks=None, **options):
            asked = [m["content"] for m in messages if m["role"] == "user"]
            trace(f"asked {asked[0].split()[0]} {len(asked)}")
            return f"I think.\\nFinal Answer: {asked[0].split()[0].lower()} {len(asked)}"

    agent = Agent(role="writer on {topic}", llm=Model("of-mine"))
    crew = Crew(agents=[agent], tasks=[
        Task(name="a", description="Write on {topic}.", agent=agent,
             guardrail=lambda o: (True, o) if o.raw[-1] == "3" else (False, "longer")),
        ConditionalTask(name="never", description="Never.", agent=agent, condition=lambda o: "owls" in o.raw),
        Task(name="b", description="Review.", agent=agent),
    ])
"""


@pytest.mark.parametrize(
    "point", ["", "step done, not recorded", "step recorded, task not ended", "task done, not committed"]
)
def test_agents_do_tasks_on_the_fleet_and_no_recorded_answer_is_paid_again(
    point: str, fleet: Any, client: Client, crew_of: Any, trace: Any, well_told: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", **({"RUNNER_CRASH_AT": f"{point}:{flag}"} if point else {}))
    handle = client.submit(crew_of(CREW), {"topic": "owls"})
    result = handle.wait(60)
    assert (result.status, result.result) == ("completed", "review. 1")
    assert result.outputs == {"a": "write 3", "never": "", "b": "review. 1"}
    assert flag.exists() == bool(point)
    again = 1 if point == "step done, not recorded" else 0
    assert len([line for line in trace.lines() if line.startswith("asked")]) == 4 + again
    well_told(handle)


# -- agents that call a model over HTTP, and use tools

WITH_TOOLS = """
    from runner import Agent, tool
    from runner.agents.tools import idempotency_key

    @tool
    def add(x: int) -> str:
        "Adds to the shop."
        trace(f"add {x} {idempotency_key()}")
        return f"added {x}"

    @tool
    def hang() -> None:
        "Hangs."
        trace("hangs")
        time.sleep(600)

    agent = Agent(role="clerk of {shop}", llm="openai/m", tools=[add, hang])
"""

ADDING = """
    crew = Crew(tasks=[
        Task(name="fill", description="Fill it.", agent=agent),
        Task(name="price", description="Price it at {price}.", agent=Agent(role="cashier", llm="openai/m"), context=[]),
        Task(name="tell", description="Tell.", agent=Agent(role="herald", llm="openai/m")),
    ])
"""


def shop(request: Any) -> Any:
    """Two rounds of two things to add, then what came of them; others just answer."""
    if "You are clerk" in request.text and request.turn < 2:
        return [Call("add", {"x": 2 * request.turn + i}) for i in range(2)]
    return Answer(f"{request.messages[0]['content'].split()[2]} {len(request.results)} {request.last[:20]}")


@pytest.fixture
def model() -> Any:
    with ModelServer(shop) as server:
        yield server


@pytest.mark.parametrize(("point", "again"), [("step done, not recorded", 2), ("model answered, not recorded", 0)])
def test_tools_are_used_once_and_keep_their_key(
    point: str,
    again: int,
    fleet: Any,
    client: Client,
    crew_of: Any,
    trace: Any,
    well_told: Any,
    model: Any,
    tmp_path: Path,
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", **model.environment, RUNNER_CRASH_AT=f"{point}:{flag}")
    handle = client.submit(crew_of(WITH_TOOLS + ADDING), {"shop": "Oslo", "price": "3"})
    result = handle.wait(60)
    assert (result.status, result.outputs["fill"]) == ("completed", "clerk 4 added 3"), result
    assert flag.exists()
    used = [line.split() for line in trace.lines() if line.startswith("add ")]
    assert len({key for _, _, key in used}) == 4
    assert {key.rpartition(":")[0] for _, _, key in used} == {f"{handle.id}:fill"}
    assert {x: key[-1] for _, x, key in used} == {"0": "1", "1": "2", "2": "3", "3": "4"}
    assert len(used) <= 4 + again, "at most the round that was in flight is used again"
    ledger = result.ledger
    assert ledger["paid"] + ledger["in_doubt"] == model.paid
    assert model.paid <= 5 + ("model" in point)
    tools = ledger["tools"]
    assert tools["paid"] == 4
    assert len(used) <= tools["paid"] + tools["in_doubt"]
    assert {(one["agent"], one["calls"]) for one in ledger["by"] if one["task"] == "fill"} >= {("clerk of Oslo", 3)}
    well_told(handle)


@pytest.mark.parametrize(("pool", "beside"), [("prefork", []), ("shared", [Call("add", {"x": 1})])])
def test_a_tool_that_hangs_is_stopped_when_the_time_is_up(
    pool: str, beside: list[Call], fleet: Any, client: Client, crew_of: Any, model: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", pool, **model.environment)
    inputs = {"shop": "Oslo", "price": "3"}
    assert client.submit(crew_of(WITH_TOOLS + ADDING), inputs).wait(60).status == "completed"
    model.use(lambda r: [Call("hang"), *beside] if r.turn < 1 else "done")
    task = 'crew = Crew(tasks=[Task(name="a", description="Go.", agent=agent, timeout=1.5)])'
    result = client.submit(crew_of(WITH_TOOLS + textwrap.indent(task, "    "), "hangs"), inputs).wait(60)
    assert (result.status, result.error) == ("failed", "task 'a': it ran longer than its timeout of 1.5 s")
    model.use(shop)
    assert client.submit(crew_of(WITH_TOOLS + ADDING, "next"), inputs).wait(60).status == "completed", "it goes on"


def test_faults_of_models_end_a_run_in_one_line(fleet: Any, client: Client, crew_of: Any, model: Any) -> None:
    fleet.start("--concurrency", "2", **{**model.environment, "OPENAI_API_KEY": "sk-secret-of-mine"})
    task = 'crew = Crew(tasks=[Task(name="a", description="Go.", agent=agent)])'
    crew = crew_of(WITH_TOOLS + textwrap.indent(task, "    "))
    model.use(Answer("the key sk-secret-of-mine is wrong", status=401))
    failed = client.submit(crew, {"shop": "Oslo"}).wait(60)
    assert failed.status == "failed"
    assert failed.error.startswith("task 'a': the model 'm' at 127.0.0.1:")
    assert "refused: 401: the key *** is wrong (is the key right" in failed.error
    faults = [Answer(status=429, retry_after=0.05), Answer(status=500)]
    none = [Answer("x", malformed=True), Answer(body='{"choices": []}')]
    model.use([Rule(None, *faults, times=2), Rule(None, *none, times=2), Rule(None, "well")])
    assert client.submit(crew, {"shop": "Oslo"}).wait(60).result == "well"
    environment = crew_of(WITH_TOOLS.replace('llm="openai/m"', "llm=None") + textwrap.indent(task, "    "), "nobody")
    refused = fleet.runner("submit", str(environment), "--input", "shop=Oslo")
    assert refused.returncode == 2
    assert "the agent 'clerk of {shop}' of task 'a' has no model: give it llm=" in refused.stderr


@pytest.mark.parametrize(
    ("field", "bad", "good", "asked"),
    [
        ("", "", "well", 3),
        ("output_json=Number", "none", '{"n":1}', 3),
        ("guardrail=lambda output: (output.raw == 'well', output.raw)", "bad", "well", 4),
    ],
)
def test_what_no_answer_was_good_enough_for_is_asked_anew_when_it_goes_on(
    field: str, bad: str, good: str, asked: int, fleet: Any, client: Client, crew_of: Any, model: Any
) -> None:
    fleet.start("--concurrency", "1", **model.environment)
    code = "class Number(BaseModel):\n    n: int\n\n" + (
        f'crew = Crew(tasks=[Task(name="a", description="Go.", agent=agent, max_retries=1, retry_delay=0.01, {field})])'
    )
    crew = crew_of("    from pydantic import BaseModel\n" + WITH_TOOLS + textwrap.indent(code, "    "))
    # Given an agent that gives no good answer in two attempts, each of which asks as often
    model.use([Rule(None, bad, times=2 * asked), Rule(None, good)])
    run = client.submit(crew, {"shop": "Oslo"})
    assert run.wait(60).status == "failed"
    assert model.paid == 2 * asked
    # When it goes on, it does with the next answer
    client.resume(run.id)
    result = run.wait(60)
    assert (result.status, result.result) == ("completed", good), result
    assert (model.paid, result.ledger["paid"]) == (2 * asked + 1, 2 * asked + 1)
    assert result.ledger["replayed"] == asked + 2 * asked, "what was answered before is not paid again"


def test_a_rule_that_another_model_judges_is_judged_once(
    fleet: Any, client: Client, crew_of: Any, model: Any, tmp_path: Path
) -> None:
    def answer(asked: Any) -> str:
        if "The rule:\nno hens" in asked.text:
            assert asked.model == "judge"
            bad = "hens" in asked.last.partition("The text:")[2]
            return f'{{"valid": {str(not bad).lower()}, "feedback": "there are hens"}}'
        return "owls" if "there are hens" in asked.text else "hens"

    model.use(answer)
    # Given a worker that dies once the second answer of its agent has been judged, too
    crash = f"task done, not committed:{tmp_path / 'died'}"
    fleet.start("--concurrency", "1", **model.environment, RUNNER_CRASH_AT=crash)
    code = "from runner.tasks.llm_guardrail import LLMGuardrail\n" + (
        'crew = Crew(tasks=[Task(name="a", description="Go.", agent=agent, '
        'guardrail=LLMGuardrail("no hens", llm="judge"))])'
    )
    result = client.submit(crew_of(WITH_TOOLS + textwrap.indent(code, "    ")), {"shop": "Oslo"}).wait(60)
    # Then no answer and no verdict is paid again
    assert (result.status, result.result) == ("completed", "owls"), result.error
    assert (tmp_path / "died").exists()
    assert (model.paid, result.ledger["paid"], result.ledger["in_doubt"]) == (4, 4, 0)
    assert result.ledger["replayed"] == 4


def test_a_fork_asks_only_the_agents_that_were_told_what_it_changes(
    fleet: Any, client: Client, crew_of: Any, trace: Any, model: Any
) -> None:
    fleet.start("--concurrency", "1", **model.environment)
    run = client.submit(crew_of(WITH_TOOLS + ADDING), {"shop": "Oslo", "price": "3"})
    run.wait(60)
    assert model.paid == 5
    fork = run.fork(inputs={"price": "4"})
    assert fork.wait(60).status == "completed"
    assert model.paid == 7, "the cashier is told the price, the herald what the cashier said"
    assert "Price it at 4." in model.log[-2].text
    fork = run.fork(inputs={"shop": "Rome"}, branch="rome")
    fork.wait(60)
    assert model.paid == 7 + 4, "the clerk is told its role"
    keys = {line.split()[2] for line in trace.lines() if line.startswith("add ")}
    assert {key for key in keys if ":rome:" in key} == {f"{run.id}:rome:fill:{n}" for n in range(1, 5)}
    fork = run.fork(edits={"fill": "by hand"})
    fork.wait(60)
    assert model.paid == 7 + 4 + 1


SLOW = """
    from runner import Agent, tool

    @tool
    def add(x: int) -> str:
        "Adds."
        return "added"

    agent = Agent(role="clerk", llm="openai/scripted", tools=[add])
    crew = Crew(agents=[agent], tasks=[Task(name="a", description="Add.", agent=agent)])
"""


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_drain_is_no_error_of_the_agent_that_it_stops(
    pool: str, fleet: Any, client: Client, crew_of: Any, well_told: Any, eventually: Any
) -> None:
    ended = threading.Event()

    def script(request: Any) -> Any:
        ended.wait(60)
        return Call("add", {"x": request.turn}) if request.turn < 2 else "Added."

    with ModelServer(script) as models:
        worker = fleet.start("--concurrency", "1", "--pool", pool, "--drain-timeout", "40", **models.environment)
        handle = client.submit(crew_of(SLOW), checkpoint_on=["SIGTERM"])
        models.wait_for(1)
        worker.terminate()
        eventually(lambda: client.checkpoints(handle.id), why="its process has heard of it")
        ended.set()
        eventually(lambda: worker.process.poll() is not None, within=60, why="the worker ends")
        fleet.start("--concurrency", "1", "--pool", pool, **models.environment)
        result = handle.wait(60)
    assert (result.result, result.ledger["paid"], result.ledger["in_doubt"]) == ("Added.", 3, 0)
    told = Counter(event.type for event in well_told(handle))
    assert (told["task_released"], told["agent_execution_error"]) == (1, 0)
    assert (told["agent_execution_started"], told["agent_execution_completed"]) == (1, 1)
