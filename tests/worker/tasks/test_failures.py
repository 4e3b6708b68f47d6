"""A failure can be understood: where it was raised, in which attempt, on which worker, with which inputs."""

import json
import re
from typing import Any

import pytest

from runner.client import Client

pytestmark = pytest.mark.timeout(120)

CREW = """
    import os
    from runner import Crew, Task

    def average(rows):
        return sum(rows) / len(rows)

    def collect(ctx):
        return ctx.step("fetch", lambda: "said " + ctx.inputs["topic"])

    def count(ctx):
        if not os.path.exists({go!r}):
            average([])
        return "counted"

    crew = Crew(tasks=[Task(name="collect", run=collect), Task(name="count", run=count, max_retries=2, retry_delay=0)])
"""
TRACE = """\
  File "crew.py", line 13, in count
    average([])
  File "crew.py", line 6, in average
    return sum(rows) / len(rows)
ZeroDivisionError: division by zero"""


def show(fleet: Any, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fleet.runner("show", run, "--json").stdout)
    return found


def test_a_failure_is_told_wherever_one_looks(fleet: Any, client: Client, write_crew: Any, tmp_path: Any) -> None:
    go = tmp_path / "go"
    fleet.start("--concurrency", "1")
    topic = "a long topic " * 10
    handle = client.submit(write_crew(CREW.format(go=str(go))), inputs={"topic": topic})
    assert handle.wait(60).status == "failed"
    # Then `show` has what was given, and of each task its attempts, its times, its worker and where it failed
    found = show(fleet, handle.id)
    assert found["inputs"] == {"topic": topic}
    done, failed = found["tasks"]
    assert (done["attempts"], failed["attempts"], failed["attempt"]) == (1, 3, 3)
    assert found["created_at"] <= done["started_at"] <= done["ended_at"] <= failed["started_at"] <= failed["ended_at"]
    assert done["worker"] == failed["worker"] != ""
    assert done["ms"] >= 0
    assert failed["traceback"].endswith(TRACE)
    assert "traceback" not in done
    shown = fleet.runner("show", handle.id).stdout
    assert TRACE in shown
    assert 'inputs: topic="a long topic' in shown
    assert topic not in shown
    assert re.search(r"count +failed +3 ", shown)
    # And the worker's log a line for each start and end, with run, branch, task and attempt
    log = fleet.log()
    for attempt in (1, 2, 3):
        assert f"task count started (run {handle.id}, branch main, attempt {attempt})" in log
        assert re.search(rf"task count failed after .*\(run {handle.id}, branch main, attempt {attempt}\): Zero", log)
    assert re.search(rf"task collect completed in \d+\.\d+ s \(run {handle.id}, branch main, attempt 1\)", log)
    assert log.count(TRACE) == 3
    assert "a long topic" not in log
    # When it is resumed, counting goes on, and what failed is no more
    go.touch()
    client.resume(handle.id)
    assert handle.wait(60).status == "completed"
    again = show(fleet, handle.id)["tasks"][1]
    assert (again["state"], again["attempts"]) == ("committed", 4)
    assert "traceback" not in again
    attempts = [event.fields.get("attempt") for event in handle.events() if event.type == "task_started"]
    assert attempts == ["1", "1", "4"]
