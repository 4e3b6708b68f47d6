"""What wakes the thread that beats for a worker."""

import os
import select
import time
from types import SimpleNamespace

import pytest

from runner.core.settings import WorkerSettings
from runner.providers.records import Beat, HeldClaim
from runner.tasks import heartbeat, shared_process
from runner.tasks.heartbeat import Deadlines, Heartbeat


class Poll:
    """Waits as `select.poll` does, on a clock that it moves itself."""

    def __init__(self, now: list[float], waits: list[float]) -> None:
        self._now, self._waits, self._fds = now, waits, list[int]()

    def register(self, fd: int, _events: int) -> None:
        self._fds.append(fd)

    def poll(self, ms: float) -> list[tuple[int, int]]:
        real = select.poll()
        for fd in self._fds:
            real.register(fd, select.POLLIN)
        ready = real.poll(0)
        if not ready:
            self._waits.append(round(ms))
            self._now[0] += ms / 1000
        return ready


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now, waits = [time.monotonic()], list[float]()
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(heartbeat, "select", SimpleNamespace(poll=lambda: Poll(now, waits), POLLIN=select.POLLIN))
    return waits


@pytest.fixture
def beating() -> Heartbeat:
    return Heartbeat(
        "redis://nowhere",
        "w",
        WorkerSettings(lease=5.0),
        about={},
        children=lambda: [os.getpid()],
        stop_here=None,
        restart=print,
        free_slot=print,
        slots=lambda: 1,
        queue=None,
        taken=int,
    )


def test_nothing_wakes_it_between_two_beats(beating, waits):
    # Given a worker whose processes are all known
    # When it waits for its next beat
    beating._wait()

    # Then it waits once, for all of that time
    assert waits == [1000]


def test_it_looks_for_a_child_that_starts(beating, waits):
    # Given a child that says that it started
    beating.child_starts()

    # When the next beat is waited for
    beating._wait()

    # Then the pool is looked at again soon, a few times, and not until the beat
    assert waits[:5] == [100] * 5
    assert len(waits) <= 7


def test_a_deadline_is_that_of_the_workers_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hears no timeout is killed, and nothing else is, wherever the store's clock is set."""
    now = [100.0]
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: now[0]))
    timed, other = HeldClaim("r|main|a", 1, "7", 1_000_000 + 30_000), HeldClaim("r|main|b", 2, "8", 0)
    deadlines = Deadlines()

    def passed(ahead: float) -> list[HeldClaim]:
        at = int((900 + now[0] + ahead) * 1000)
        return deadlines.passed(Beat(True, 0, at, (timed, other), 1), 10.0)

    assert passed(0.0) == []
    for ahead in (3600.0, -3600.0, 0.0):
        assert passed(ahead) == []
    now[0] += 39.0
    assert passed(-3600.0) == []
    now[0] += 2.0
    assert passed(-3600.0) == [timed]


@pytest.mark.parametrize(
    ("processes", "offers", "taken"),
    [
        (["1", "2"], 0, 2),
        (["1", "1-0", "1-1", "1-2"], 0, 1),  # three share the process of the first
        (["1", "1-0"], 2, 3),  # two have a job, and wait for that process to begin it
        ([], 0, 0),
    ],
)
def test_a_slot_is_taken_by_a_task_or_by_a_job_that_is_offered_to_another_process(
    processes: list[str], offers: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where jobs wait, and slots are free for so long, a worker restarts itself."""
    monkeypatch.setattr(shared_process, "offered", lambda: offers)
    claims = [HeldClaim(f"r|main|t{n}", n, name, 0) for n, name in enumerate(processes)]
    assert shared_process.taken_slots(claims, forked=True) == taken
    # where all of its tasks are in threads, each takes one
    assert shared_process.taken_slots(claims, forked=False) == len(processes)
