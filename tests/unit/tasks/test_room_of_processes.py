"""How many processes a pool has beside those whose tasks wait for models."""

from types import SimpleNamespace
from typing import Any

import pytest

from runner.tasks import capacity
from runner.tasks.pool import Pool


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pool of four processes, which may be six, and which begins none here."""
    monkeypatch.setattr(Pool, "on_grow", lambda *_: None)
    monkeypatch.setattr(capacity, "has_room", lambda waiting: True)
    made: Any = Pool.__new__(Pool)
    made._pool = [SimpleNamespace(inqW_fd=number) for number in range(4)]
    made._processes, made._most, made._waiting, made._putlock = 4, 6, set[int](), None
    return made


def test_those_that_tell_at_the_same_moment_are_given_no_more_than_there_may_be(pool: Any) -> None:
    for number in range(4):  # none is begun between these
        pool._on_wait(number)
    assert pool._processes == 6
    for number in range(4):
        pool._ended(number)
    assert pool._processes == 4


def test_one_that_waits_again_in_the_runs_next_task_has_one_more(pool: Any) -> None:
    for _ in range(3):
        pool._on_wait(1)
    assert pool._processes == 5
    pool._ended(1)
    assert pool._processes == 4
