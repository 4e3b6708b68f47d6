"""One rule for what follows a failed attempt, on the fleet and in one process."""

import pytest

from runner.core.backoff import LONGEST
from runner.core.errors import GuardrailFailed, MissingDependency, TaskError
from runner.engine.attempt import next_delay, until_passed


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


def passing(wanted: str, outputs: list[str], retries: int) -> tuple[str, list[str]]:
    said: list[str] = []

    def check(output: str, failed: int) -> tuple[str, str | None]:
        return (output.upper(), None) if output == wanted else (output, f"{output} after {failed}")

    left = iter(outputs)
    return until_passed(lambda: next(left), check, retries, said.append, "the output of task 'a'"), said


def test_the_first_output_that_passes_is_taken_as_its_guardrail_leaves_it():
    assert passing("b", ["a", "b", "c"], 2) == ("B", ["a after 0"])


@pytest.mark.parametrize(("retries", "words"), [(0, "once; last: x after 0"), (2, "3 times; last: x after 2")])
def test_what_never_passes_fails_with_what_was_said_last(retries, words):
    with pytest.raises(GuardrailFailed, match=f"^the output of task 'a' did not pass its guardrail, {words}$"):
        passing("b", ["x"] * 9, retries)
