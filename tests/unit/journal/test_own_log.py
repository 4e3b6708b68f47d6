"""What a process remembers of the many tasks that wait in it takes the room of what it says, and no page for each."""

import tracemalloc

import pytest

from runner.journal import shared_memory
from runner.journal.acknowledged_writes import LARGEST, WINDOW, Logs
from runner.testing import ManualClock

TASKS = 2_000


def test_a_task_that_waits_for_its_call_takes_less_than_a_kilobyte() -> None:
    logs = Logs(TASKS, forked=False)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for n in range(TASKS):
            logs.log(n).claimed(f"run-of-this-length-{n}|main|write", 1).began('[["call", "writer", "gpt-4o", 1, 0]]')
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(logs.claims()) == TASKS
    assert taken / TASKS < 1_000


def test_a_place_keeps_what_it_had_for_so_long_and_not_the_rest() -> None:
    clock = ManualClock()
    logs = Logs(1, clock, forked=False)
    for n in range(1_000):
        logs.log(0).claimed(f"r|main|t{n}", n).ended("commit")
        clock.advance(1)
    assert [claim.token for claim in logs.claims()] == list(range(1_000 - int(WINDOW), 1_000))
    tracemalloc.start()
    try:
        for n in range(1_000, 2_000):
            logs.log(0).claimed(f"r|main|t{n}", n).ended("commit")
            clock.advance(1)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()


def test_a_place_that_is_taken_again_remembers_what_was_acknowledged_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_memory", None)
    monkeypatch.setattr(shared_memory, "_logs", None)
    shared_memory.share(2, forked=False)
    shared_memory.page(1, "7-1").claimed("r|main|a", 3)
    shared_memory.page(1, "7-1").claimed("r|main|b", 4)
    assert [claim.ref for claim in shared_memory.remembered()] == ["r|main|a", "r|main|b"]


def test_a_place_takes_no_more_than_a_ring_would() -> None:
    logs = Logs(1, forked=False)
    claim = logs.log(0).claimed("r|main|t", 1)
    tracemalloc.start()
    try:
        for step in range(2_000):
            claim.recorded([f"{step:04d}" + 400 * "x"], "", "")
        assert tracemalloc.get_traced_memory()[0] < 1.3 * LARGEST
    finally:
        tracemalloc.stop()
    (kept,) = logs.claims()
    assert list(kept.steps)[-1].startswith("1999")
    assert kept.recorded == 2_000
