"""The pauses before another attempt."""

import random

import pytest

from runner.core.backoff import Backoff, delay, jittered


def test_a_delay_doubles_up_to_the_longest_and_is_at_least_half_of_that() -> None:
    for failures, whole in [(1, 0.5), (2, 1.0), (3, 2.0), (10, 256.0), (11, 300.0), (10**6, 300.0)]:
        found = [delay(failures, 0.5, random.Random(seed)) for seed in range(100)]
        assert min(found) >= whole / 2
        assert max(found) <= whole
        assert len(set(found)) == 100


def test_the_pauses_of_a_loop_grow_to_the_longest_and_start_over_after_a_success() -> None:
    backoff = Backoff(0.1, 1.0)
    for _ in range(2):
        for whole in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
            assert whole / 2 <= backoff.pause() <= whole
        backoff.reset()


def test_those_of_many_do_not_coincide() -> None:
    assert len({Backoff(0.1, 1.0).pause() for _ in range(100)}) == 100
    found = [jittered(60.0) for _ in range(100)]
    assert len(set(found)) == 100
    assert sum(found) / 100 == pytest.approx(60, rel=0.1)
    assert 45 <= min(found) < max(found) <= 75
