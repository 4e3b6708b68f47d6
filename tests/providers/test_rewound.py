"""A store that went back in time: what it forgot is not taken for what comes after."""

from collections.abc import Callable
from typing import Any

import pytest

from runner.errors import ClaimLost

from .driver import Driver, plan_of


def test_no_token_is_given_twice(server: Any, driver: Driver, clock: Any, backup: Callable[[str], Any]) -> None:
    # Given a claim that the store forgets
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    before = backup(server.url)
    older = driver.claim(job)
    before.restore()
    clock.go_on(1)
    # When another worker is given the task, a millisecond later
    newer = driver.claim(job, "w1", "p1")
    # Then what the first one writes late is refused, and what the second one writes is not taken for the first one's
    with pytest.raises(ClaimLost):
        driver.task(older).record_step("s", "1", replayed=0)
    assert driver.commit(newer) == "completed"
    with pytest.raises(ClaimLost):
        driver.commit(older)
