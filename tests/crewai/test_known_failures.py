"""What CrewAI's own checkpoints lose or repeat (its version 1.15) is neither lost nor repeated here."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Call, ModelRequest, ModelServer

CREW = """
    from crewai import Agent, Crew, Task
    from crewai.state.checkpoint_config import CheckpointConfig
    from crewai.tasks.conditional_task import ConditionalTask
    from crewai.tools import tool

    def note(text):
        with open({log!r}, "a") as out:
            out.write(text + chr(10))

    @tool
    def look_up(word: str) -> str:
        \"\"\"Looks a word up.\"\"\"
        note("looked up")
        return "tea is a drink"

    def is_long_enough(output):
        note("guarded")
        return True, output.raw.upper()

    agent = Agent(role="writer", goal="write", backstory="it writes", tools=[look_up])
    common = dict(expected_output="text", agent=agent)
    crew = Crew(
        agents=[agent],
        tasks=[
            Task(name="one", description="First.", guardrail=is_long_enough, **common),
            ConditionalTask(name="two", description="Second.", condition=lambda output: False, **common),
            Task(name="three", description="Third.", callback=lambda output: note("called back"), **common),
        ],
        checkpoint=CheckpointConfig(on_events=["task_completed", "llm_call_completed", "tool_usage_finished"]),
    )
"""

FLOW = """
    from crewai.flow import Flow, listen, router, start

    class Routed(Flow):
        @start()
        def begin(self):
            self.state["begun"] = self.state.get("begun", 0) + 1

        @router(begin)
        def which(self):
            return "there"

        @listen("there")
        def target(self):
            return "begun " + str(self.state["begun"])
"""


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    def answer(request: ModelRequest) -> Any:
        wants = "First." in request.text and "tea is a drink" not in request.text
        return Call("look_up", {"word": "tea"}) if wants else "said"

    with ModelServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.root + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
        yield server


def _triggers(fleet: Any, run: str) -> list[str]:
    return [one["trigger"] for one in json.loads(fleet.runner("checkpoint", "list", run, "--json").stdout)]


def test_a_crew_with_tools_guardrails_conditions_and_callbacks_is_checkpointed_and_restored(
    crewai_fleet: Any, client: Client, models: ModelServer, tmp_path: Path
) -> None:
    log, file = tmp_path / "log", tmp_path / "crew.py"
    file.write_text(textwrap.dedent(CREW.format(log=str(log))))
    crewai_fleet.start("--concurrency", "1")
    done = crewai_fleet.runner("submit", str(file), "--json", timeout=170)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["outputs"]["one"], told["outputs"]["two"], told["result"]) == ("SAID", "", "said")
    assert log.read_text().split("\n") == ["looked up", "guarded", "called back", ""]
    run = told["run_id"]
    # Points 4, 5 and 6: none is lost, for a tool, or for an event inside of a task.
    triggers = _triggers(crewai_fleet, run)
    assert [triggers.count(one) for one in ("task_completed", "llm_call_completed", "tool_usage_finished")] == [3, 3, 1]
    # Points 8 and 9: a fork goes on with the code of the file. What is done stays done, what was skipped stays skipped.
    paid = models.paid
    forked = crewai_fleet.runner("fork", run, "--edit", "one=other", "--json", timeout=170)
    assert forked.returncode == 0, forked.stderr
    again = json.loads(forked.stdout)
    assert (again["outputs"]["one"], again["outputs"]["two"], models.paid - paid) == ("other", "", 1)
    assert log.read_text().split("\n")[3:] == ["called back", ""]
    # Points 7 and 8: no copy of everything in each checkpoint, and no key in any.
    keys = list(client.store.client.scan_iter("*"))
    stored = b"".join(client.store.client.dump(key) or b"" for key in keys)
    assert b"sk-of-the-test" not in stored
    assert sum(len(client.store.client.dump(key) or b"") for key in keys if "checkpoint" in key) < 20_000


def test_a_flow_that_is_resumed_after_its_router_runs_the_target(crewai_fleet: Any, tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(textwrap.dedent(FLOW))
    crewai_fleet.start("--concurrency", "1")
    run = json.loads(crewai_fleet.runner("submit", str(file), "--json", timeout=170).stdout)
    assert run["result"] == "begun 1"
    listed = json.loads(crewai_fleet.runner("checkpoint", "list", run["run_id"], "--json").stdout)
    after_router = next(one["id"] for one in listed if one["task"] == "which")
    again = crewai_fleet.runner("fork", run["run_id"], "--checkpoint", after_router, "--json", timeout=170)
    assert (again.returncode, json.loads(again.stdout)["result"]) == (0, "begun 1"), again.stderr
