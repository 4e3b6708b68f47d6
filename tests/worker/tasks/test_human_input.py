"""Runs on real workers that wait for a word on a task: whoever dies meanwhile, nothing is done again for it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.core.errors import BadInput
from runner.testing import ModelServer, Rule

ASKS = """
    from runner import Agent

    def plain(ctx):
        number = ctx.step("number", lambda: trace("step number") or 7)
        return {"number": number, "said": ctx.feedback}

    agent = Agent(role="writer", llm="openai/scripted")
    crew = Crew(process=Process.graph, tasks=[
        Task(name="draft", description="Draft", agent=agent, human_input=True, context=[]),
        Task(name="plain", run=plain, human_input=True, context=[]),
        Task(name="beside", description="Beside", agent=agent, context=[]),
    ])
    crew.tasks.append(Task(name="end", run=lambda ctx: ctx.context[0].raw + ctx.context[1].raw, context=crew.tasks[:2]))
    """
SCRIPT = [Rule("says: shorter", "too early", "draft 2"), Rule("Draft", "draft 1"), Rule("Beside", "beside")]


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """Counts the calls of the model."""
    with ModelServer(SCRIPT) as one:
        yield one


@pytest.mark.parametrize("point", ["question put, not asked", "step recorded, task not ended"])
def test_every_worker_is_replaced_while_a_run_waits_and_no_call_is_paid_twice(
    point: str,
    models: ModelServer,
    fleet: Any,
    client: Client,
    crew_of: Any,
    trace: Any,
    well_told: Callable[..., Any],
    tmp_path: Path,
) -> None:
    flag = tmp_path / "died"
    crash = {"RUNNER_CRASH_AT": f"{point}:{flag}"}
    first = fleet.start("--concurrency", "2", **models.environment, **crash)
    handle = client.submit(crew_of(ASKS))
    waiting = handle.wait(60)
    assert (waiting.status, int(waiting.exit_code)) == ("waiting", 5)
    assert list(waiting.outputs) == ["beside"], "what does not depend on the answers is done"
    assert {one.task: one.about["method_output"] for one in waiting.asked} == {
        "draft": "draft 1", "plain": {"number": 7, "said": None},
    }  # fmt: skip
    first.kill_group()
    assert handle.status == "waiting"
    fleet.start("--concurrency", "2", **models.environment)
    with pytest.raises(BadInput, match="exactly one of"):
        client.answer(handle.id, "yes", approve=True, task="draft")
    assert client.answer(handle.id, reject="shorter", task="draft").wait(60).status == "waiting"
    again = client.answer(handle.id, reject="larger", task="plain").wait(60)
    assert {one.task: one.about["method_output"] for one in again.asked} == {
        "draft": "draft 2", "plain": {"number": 7, "said": "larger"},
    }  # fmt: skip
    fleet.workers[-1].kill_group()
    fleet.start("--concurrency", "2", **models.environment)
    client.answer(handle.id, approve=True, task="draft")
    result = client.answer(handle.id, " ", task="plain").wait(60)
    assert (result.status, result.asked) == ("completed", ())
    assert result.result == 'draft 2{"number": 7, "said": "larger"}'
    assert flag.exists()
    assert (models.paid, trace.lines()) == (3, ["step number", "step number"])
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (3 + 2, 0)
    # What was said before an answer came is served, and counted as that: one call, then two
    (draft,) = (line for line in result.ledger["by"] if line["task"] == "draft")
    assert draft["replayed"] >= 3
    assert draft["replayed_tokens"] > 0
    well_told(handle)


def test_on_the_command_line(fleet: Any, crew_of: Any) -> None:
    path = crew_of('crew = Crew(tasks=[Task(name="t", run=lambda ctx: f"text {ctx.feedback}", human_input=True)])')
    fleet.start("--concurrency", "1")
    submitted = fleet.runner("submit", str(path), "--json")
    assert submitted.returncode == 5, submitted.stderr
    found = json.loads(submitted.stdout)
    (asked,) = found["asked"]
    assert (asked["task"], asked["method_output"]) == ("t", "text None")
    shown = fleet.runner("show", found["run_id"]).stdout
    assert re.search(r"^t +asked +1 ", shown, re.MULTILINE), "the second attempt begins with the answer"
    assert "t: Is this answer good?" in shown
    assert f"answer it: runner answer {found['run_id']} --text TEXT | --approve | --reject WHY" in shown
    rejected = fleet.runner("answer", found["run_id"], "--task", "t", "--reject", "better")
    assert (rejected.returncode, rejected.stdout) == (5, "")
    assert "t: Is this answer good?" in rejected.stderr
    assert "text better" in rejected.stderr
    assert f"answer it: runner answer {found['run_id']} --text TEXT | --approve | --reject WHY" in rejected.stderr
    approved = fleet.runner("answer", found["run_id"], "--approve")
    assert (approved.returncode, approved.stdout) == (0, "text better\n")


def test_a_crew_inside_of_a_method_asks_for_its_flow(fleet: Any, client: Client, flow_of: Any, trace: Any) -> None:
    handle = client.submit(
        flow_of(
            """
    class Outer(Flow[dict]):
        @start()
        def work(self):
            def draft(ctx):
                return ctx.step("draft", lambda: trace("step draft") or "text")
            return Crew(tasks=[Task(name="inner", run=draft, human_input=True)]).kickoff().raw
    """
        )
    )
    fleet.start("--concurrency", "1")
    (question,) = handle.wait(60).asked
    assert (question.task, question.about["task"], question.about["method_output"]) == ("work", "inner", "text")
    assert client.answer(handle.id, approve=True).wait(60).result == "text"
    assert trace.lines() == ["step draft"]
