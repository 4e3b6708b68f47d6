"""No child of a worker waits for a lock that a thread of its main process held when it was forked."""

import os
import signal
from pathlib import Path
from typing import Any

from runner.client import Client

WATCH = Path(__file__).parents[2] / "support" / "lock_watch"
KILLS = 6


def test_no_child_takes_a_lock_that_another_thread_held_at_its_fork(
    fleet: Any, client: Client, crew_of: Any, tmp_path: Path, eventually: Any
) -> None:
    # Given a worker whose threads wait a moment with each lock that they take
    found = tmp_path / "found"
    found.touch()
    crew = crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "x")])')
    worker = fleet.start("--concurrency", "1", PYTHONPATH=str(WATCH), LOCK_WATCH=str(found))
    killed: set[int] = set()
    for _ in range(KILLS):
        # When its child is killed again and again
        child = eventually(lambda: set(worker.children()) - killed, why="the pool is up").pop()
        handle = client.submit(crew)
        os.kill(child, signal.SIGKILL)
        killed.add(child)
        # Then each that replaces it does its task, and takes none that another thread held
        eventually(lambda run=handle: found.stat().st_size or run.status == "completed", why="it is done")
        assert found.read_text() == ""
    assert found.with_name("found.held").read_text(), "no fork came when one was held"
