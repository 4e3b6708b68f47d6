"""What one test leaves in the environment, no other finds: they stand in this order in one process."""

import os

import pytest

from runner.cli.inspection import runs


@pytest.mark.parametrize("time", [1, 2])
def test_an_option_of_a_command_ends_with_its_test(time):
    assert "redis://of-this-test" not in os.environ.values()
    runs.make_context("runs", ["--redis-url", "redis://of-this-test"])
    assert os.environ["RUNNER_REDIS_URL"] == "redis://of-this-test"
