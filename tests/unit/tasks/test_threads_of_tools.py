"""The uses of tools have threads of their own, of which there are only so many."""

import threading
from typing import Any

import pytest

from runner.agents.concurrently import run_concurrently
from runner.testing import eventually

pytest.importorskip("runner.tasks.task_loop")


@pytest.mark.parametrize("agents", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_tools_of_many_agents_have_few_threads_and_none_waits_for_one_that_waits_for_it(
    tasks: Any, agents: int
) -> None:
    """What a tool uses itself has its thread beside: it would wait for a place that the tool around it keeps."""
    counting, now, most = threading.Lock(), [0], [0]

    def use(inside: int) -> int:
        with counting:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            return 1 + sum(run_concurrently([lambda: use(inside - 1)] * 2)) if inside else 1
        finally:
            with counting:
                now[0] -= 1

    for _ in range(agents):
        tasks.begin(lambda: run_concurrently([lambda: use(1)]))
    assert tasks.results() == [[3]] * agents
    assert most[0] <= 2 * 3  # each of two, with what it uses
    # The loop hears of the last thread's end after its result
    assert eventually(lambda: tasks.loop.for_tools._free == 2, why="all places are free again")
