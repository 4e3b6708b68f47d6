"""What CrewAI's own checkpoints lose or repeat (its version 1.15) is neither lost nor repeated here."""

import json
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Call, ModelRequest, ModelServer, eventually

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


ONE = """
    from crewai import Agent, Crew, Task
    from crewai.state.checkpoint_config import CheckpointConfig
    from crewai.tools import tool

    @tool
    def look_up(word: str) -> str:
        \"\"\"Looks a word up.\"\"\"
        with open({log!r}, "a") as out:
            out.write("looked up ")
        return "tea is a drink"

    agent = Agent(role="writer", goal="write", backstory="it writes", tools=[look_up])
    crew = Crew(
        agents=[agent],
        tasks=[Task(name="one", description="First.", expected_output="text", agent=agent)],
        checkpoint=CheckpointConfig(on_events=["SIGTERM"]),
    )
"""


def test_a_signal_writes_a_checkpoint_and_a_killed_task_pays_for_no_answered_call_again(
    crewai_fleet: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = threading.Event()

    def answer(request: ModelRequest) -> Any:
        if "tea is a drink" not in request.text:
            return Call("look_up", {"word": "tea"})
        may_answer.wait(150)
        return "said"

    with ModelServer(answer) as models:
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
        file = tmp_path / "crew.py"
        file.write_text(textwrap.dedent(ONE.format(log=str(tmp_path / "log"))))
        worker = crewai_fleet.start("--concurrency", "1", "--drain-timeout", "100")
        run = crewai_fleet.runner("submit", str(file), "--detach").stdout.split()[-1]
        models.wait_for(2, 100)
        # Point 6: the signal's checkpoint is written. Point 3: the first of the calls is not made again after a kill.
        worker.terminate()
        eventually(lambda: [one.trigger for one in client.checkpoints(run)] == ["SIGTERM"], why="the checkpoint")
        worker.kill_group()
        may_answer.set()
        crewai_fleet.start("--concurrency", "1")
        result = client.run(run).wait(120)
        assert (result.status, result.result) == ("completed", "said"), result
        found = [result.ledger[name] for name in ("paid", "replayed", "in_doubt")]
        assert (found, models.requests) == ([2, 1, 1], 3)
        assert (tmp_path / "log").read_text() == "looked up "
