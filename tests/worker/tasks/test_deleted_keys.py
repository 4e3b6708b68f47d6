"""Keys of a run that are deleted or overwritten under living workers: no run is `running` for ever."""

from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.providers.redis import keys

TWO_TASKS = """
crew = Crew(tasks=[Task(name="a", run=steps("a", 3, 0, held_at=1)), Task(name="b", run=steps("b", 1, 0))])
"""


@pytest.mark.parametrize(
    ("gone", "overwritten", "reason"),
    [
        ("task", False, "task 'a': its record is gone from the store"),
        ("branch", False, "branch 'main' is gone from the store"),
        ("task", True, "task 'a': its record is gone from the store"),
    ],
)
def test_a_run_fails_and_says_what_is_gone(
    fleet: Any,
    client: Client,
    redis: Redis,
    crew_of: Any,
    trace: Any,
    eventually: Any,
    gone: str,
    overwritten: bool,
    reason: str,
) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(TWO_TASKS))
    eventually(lambda: trace.held("a"), why="the first task is at work")
    branch = keys.branch_key(handle.id, "main")
    lost = branch if gone == "branch" else keys.key("task_key", branch_key=branch, name="a")
    redis.set(lost, "of another type") if overwritten else redis.delete(lost)
    eventually(lambda: handle.status == "failed", why="the leader looks at it", within=60)
    result = handle.result()
    assert result.error is not None
    assert result.error.startswith(reason)
    trace.let_go()
    # And who did that task goes on with what comes next
    other = client.submit(crew_of('crew = Crew(tasks=[Task(name="c", run=steps("c", 1, 0))])', "other"))
    assert other.wait(60).status == "completed"
