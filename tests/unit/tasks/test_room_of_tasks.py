"""What each task in flight has of its own takes little room: thousands of them wait at a time."""

import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from greenlet import getcurrent

from runner.core.ledger import Counters
from runner.core.plan.dependencies import InputsInUse, ReadTracker
from runner.journal.enclosing import inside_of
from runner.tasks.switching import SwitchingAlarm, SwitchingTask

_LOOP: Any = SimpleNamespace(hub=getcurrent())
_READS = ReadTracker()


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (Counters, 200),
        (lambda: InputsInUse({}, _READS), 90),
        (lambda: inside_of(None), 150),
        (lambda: SwitchingAlarm(None, _LOOP), 80),
        (lambda: SwitchingTask(_LOOP, bool, None), 650),
    ],
)
def test_one_takes_so_many_bytes_at_most(make: Callable[[], object], most: int) -> None:
    make()
    tracemalloc.start()
    try:
        made = [make() for _ in range(1_000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(made) == 1_000
    assert taken / 1_000 <= most
