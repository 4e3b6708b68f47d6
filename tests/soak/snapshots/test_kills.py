"""A crew that dies a hundred times while it writes checkpoints."""

import pytest


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "lives"), [("checkpoints", 100), ("checkpoints.db", 25)])
def test_parallel_tasks_killed_and_resumed_pair_up_exactly_once(kill_often, kind, lives):
    kill_often(kind, lives, 60)
