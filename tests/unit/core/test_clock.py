"""The clocks behind the port: the system's, and one that goes on only when it is told to."""

import asyncio
import time

import pytest

from runner.core.clock import SYSTEM, Clock
from runner.journal.acknowledged_writes import WINDOW, Logs
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.providers.memory import MemoryStore
from runner.testing import ManualClock


@pytest.mark.parametrize("clock", [SYSTEM, ManualClock()], ids=["system", "manual"])
def test_who_sleeps_wakes_later(clock: Clock) -> None:
    before, day = clock.monotonic(), clock.now()
    clock.sleep(0.001)
    asyncio.run(clock.sleep_async(0.001))
    assert clock.monotonic() - before >= 0.0019
    assert clock.now() > day


def test_the_systems_clock_is_that_of_all_processes_here() -> None:
    assert abs(SYSTEM.now() - time.time()) < 60
    assert abs(SYSTEM.monotonic() - time.monotonic()) < 60


def test_a_manual_clock_stands_still_and_is_exact() -> None:
    clock = ManualClock(1000)
    assert [clock.now(), clock.now()] == [1000, 1000]
    for _ in range(100_000):
        clock.advance(0.001)
    assert clock.now() == clock.monotonic() == 1100


def test_a_store_in_memory_goes_by_its_clock() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    store.workers.beat("w0", 1000, "{}")
    clock.advance(0.999)
    assert store.workers.lapsed(store.memory.now()) == []
    clock.advance(0.001)
    assert [worker for worker, _ in store.workers.lapsed(store.memory.now())] == ["w0"]


@pytest.mark.parametrize("forked", [True, False])
def test_what_was_acknowledged_is_remembered_for_so_long_by_the_clock(forked: bool) -> None:
    clock = ManualClock()
    logs = Logs(1, clock, forked=forked)
    logs.log(0).claimed("r-1/main/a", 1)
    clock.advance(WINDOW)
    assert [claim.ref for claim in logs.claims()] == ["r-1/main/a"]
    clock.advance(0.01)
    assert logs.claims() == []


def test_a_gate_counts_the_time_with_a_person_by_the_clock() -> None:
    clock = ManualClock()
    cancel_scope = CancelScope(clock)
    with cancel_scope.person():
        clock.advance(30)
    assert cancel_scope.with_person() == 30
