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


def overwrite(redis: Redis, name: str) -> None:
    assert redis.delete(name)
    redis.set(name, "of another type")


@pytest.mark.parametrize("name", ["journal", "active", "claims", "queue"])
def test_a_run_goes_on_where_a_key_was_overwritten(
    fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, eventually: Any, name: str
) -> None:
    worker = fleet.start("--concurrency", "1")
    main = worker.main_pid()
    handle = client.submit(crew_of(TWO_TASKS))
    eventually(lambda: trace.held("a"), why="the first task is at work")
    branch = keys.branch_key(handle.id, "main")
    if name == "queue":
        other = client.submit(crew_of('crew = Crew(tasks=[Task(name="c", run=steps("c", 1, 0))])', "other"))
    (found,) = {
        "journal": [keys.key("journal_key", branch_key=branch, name="a")],
        "active": [keys.key("active_key", home=keys.HOME)],
        "claims": redis.keys("runner:{p0}:claims:*"),
        "queue": redis.keys("runner:p[0-9]*:*"),
    }[name]
    overwrite(redis, found)
    trace.let_go()
    result = handle.wait(60)
    # Nothing was done twice, no process died of it, and nobody waits for the leader
    assert (result.status, result.outputs) == ("completed", {"a": "0 1 2", "b": "0"})
    assert trace.repeated() == 0
    assert result.recoveries == 0
    assert result.ledger["paid"] == 4
    if name == "queue":
        assert other.wait(60).status == "completed"
    assert worker.main_pid() == main
    assert "removed, so it counts as deleted" in fleet.log()


LAST_READS = """
crew = Crew(tasks=[
    Task(name="a", run=steps("a", 1, 0)),
    Task(name="b", run=steps("b", 1, 0, held_at=0)),
    Task(name="c", run=lambda ctx: READS),
])
"""


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        ("ctx.outputs['a'].raw", "task 'c': the output of task 'a' is gone from the store"),
        ("'all done'", "the outputs of 1 of its tasks are gone from the store"),
    ],
)
def test_a_run_of_which_outputs_are_gone_is_not_completed_before_they_are_there_again(
    fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, eventually: Any, reads: str, reason: str
) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(LAST_READS.replace("READS", reads)))
    eventually(lambda: trace.held("b"), why="the second task is at work")
    assert redis.delete(keys.key("outputs_key", branch_key=keys.branch_key(handle.id, "main")))
    trace.let_go()
    result = handle.wait(60)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.startswith(reason)
    # A resume does that again, and nothing else
    client.resume(handle.id)
    assert handle.wait(60).outputs.keys() == {"a", "b", "c"}
    assert trace.steps() == {"step a 0": 2, "step b 0": 1}
