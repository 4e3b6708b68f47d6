"""A run that asked for a checkpoint at a signal has it once a worker's process has got that signal."""

import signal
from typing import Any

import pytest

from runner.client import Client

from ...support.soak import in_soak

pytestmark = pytest.mark.timeout(120)

TASKS = """
    crew = Crew(tasks=[Task(name="a", run=steps("a", 6, 0.05, held_at=3)), Task(name="b", run=steps("b", 2, 0.01))])
"""


@pytest.mark.parametrize("pool", ["prefork", "shared"])
@pytest.mark.parametrize("name", ["SIGTERM", *in_soak("SIGINT", "SIGHUP")])
def test_a_signal_that_ends_a_worker(
    name: str,
    pool: str,
    fleet: Any,
    client: Client,
    crew_of: Any,
    trace: Any,
    reconcile: Any,
    eventually: Any,
    request: pytest.FixtureRequest,
) -> None:
    if name == "SIGTERM":  # of the others the handlers are the same, whichever way the worker was started
        request.getfixturevalue("started_afresh")
    worker = fleet.start("--concurrency", "1", "--pool", pool)
    handle = client.submit(crew_of(TASKS), checkpoint_on=[name])
    eventually(lambda: trace.held("a"), why="the third step")
    worker.process.send_signal(getattr(signal, name))
    # The checkpoint is there when the process has ended, with the exit code that it always has.
    assert worker.process.wait(30) == 0
    kept = client.checkpoints(handle.id)
    assert [(c.trigger, c.task) for c in kept] == [(name, "a")]
    trace.let_go()
    fleet.start("--concurrency", "1")
    handle.wait(60)
    reconcile(client, handle)


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_pause_and_its_end(
    pool: str, fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    """Ctrl-Z in the worker's terminal, and fg."""
    worker = fleet.start("--concurrency", "1", "--pool", pool)
    handle = client.submit(crew_of(TASKS), checkpoint_on=["SIGTSTP", "SIGCONT"])
    eventually(lambda: trace.held("a"), why="the third step")
    worker.signal_group(signal.SIGTSTP)
    eventually(lambda: [c.trigger for c in client.checkpoints(handle.id)] == ["SIGTSTP"], why="the first checkpoint")
    worker.signal_group(signal.SIGCONT)
    eventually(lambda: [c.trigger for c in client.checkpoints(handle.id)][-1] == "SIGCONT", why="the second")
    trace.let_go()
    handle.wait(60)
    reconcile(client, handle)


def test_a_run_that_did_not_ask_gets_none(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    worker = fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(TASKS), checkpoint_on=["crew_kickoff_completed"])
    eventually(lambda: trace.held("a"), why="the third step")
    worker.terminate()
    assert worker.process.wait(30) == 0
    assert client.checkpoints(handle.id) == []
