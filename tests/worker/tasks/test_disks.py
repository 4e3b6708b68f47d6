"""A machine whose disk is full, or refuses: its attempts fail, and the run goes on elsewhere."""

import pytest

from runner.core.errors import DiskTrouble
from runner.engine import jobs
from runner.engine.decisions import Fail, Retry

pytestmark = pytest.mark.timeout(120)

CREW = """
    from runner import Crew, Task

    def writes(ctx):
        (ctx.workdir / "x.txt").write_text("x")
        return "done"

    crew = Crew(tasks=[Task(name="a", run=writes)])
"""


@pytest.mark.parametrize("what", ["attempts", "bundles"])
def test_a_task_that_its_machine_has_no_room_for_is_done_by_another(
    fleet, client, write_crew, tmp_path, eventually, what
):
    cache = tmp_path / "bad"
    cache.mkdir()
    (cache / what).write_text("no folder can be made below a file")
    bad = fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(cache))
    handle = client.submit(str(write_crew(CREW)))
    retried = eventually(lambda: [one for one in handle.events() if one.type == "task_retried"], why="it gave it back")
    assert "this machine's disk refused what the task needs: [Errno" in retried[0].fields["reason"]
    bad.kill_group()
    fleet.start("--concurrency", "1", RUNNER_CACHE_DIR=str(tmp_path / "good"))
    assert handle.wait(60).result == "done"


def test_there_is_an_end_to_it(monkeypatch):
    class Claim:
        failures = 0

    claim = Claim()
    error = ValueError("the model's client could not start")  # what a library makes of it
    error.__cause__ = DiskTrouble("this machine's disk refused what the task needs: [Errno 28] No space left on device")
    found = jobs.after_failure(error, claim, None)
    assert isinstance(found, Retry)
    assert "on worker host" in found.reason
    claim.failures = jobs.ATTEMPTS_ELSEWHERE - 1
    assert isinstance(jobs.after_failure(error, claim, None), Fail)
