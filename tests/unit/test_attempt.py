"""One rule for what follows a failed attempt, on the fleet and in one process."""

import pytest

from runner.core.backoff import LONGEST
from runner.core.errors import MissingDependency, TaskError
from runner.engine.attempt import next_delay


def test_the_delay_doubles_and_half_of_it_is_jitter():
    for failures in range(1, 20):
        whole = min(4 * 2 ** (failures - 1), LONGEST)
        found = [next_delay(TaskError("x"), failures, (20, 4.0)) or 0.0 for _ in range(50)]
        assert whole / 2 <= min(found) < max(found) <= whole


@pytest.mark.parametrize(("failures", "follows"), [(1, True), (2, True), (3, False), (4, False)])
def test_so_many_follow_a_failed_one(failures, follows):
    assert (next_delay(ValueError(), failures, (2, 0.0)) is not None) is follows


@pytest.mark.parametrize("error", [ImportError("x"), ModuleNotFoundError("x"), MissingDependency("x")])
def test_what_is_not_installed_is_not_tried_again(error):
    assert next_delay(error, 1, (9, 1.0)) is None
