"""A worker that lost Redis for a while comes back by itself and takes up work again."""

import time
from typing import Any

import pytest

from runner.client import Client


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_redis_is_away_for_longer_than_the_lease(
    pool: str, own_server: Any, own_fleet: Any, own_client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    # Given one worker with a short lease, busy
    worker = own_fleet.start("--concurrency", "2", "--lease", "0.5", "--pool", pool)
    handle = own_client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=steps("a", 40, 0.05))])'))
    eventually(lambda: trace.steps()["step a 3"], why="the fourth step")
    before = worker.main_pid()
    # When Redis is away for three leases
    own_server.kill()
    gone = time.monotonic()
    eventually(lambda: time.monotonic() - gone > 1.5, why="time passes")
    own_server.start()
    # Then the run completes on it, it is the same process, and the next run is served at once
    result = handle.wait(60)
    assert result.status == "completed"
    assert trace.repeated() <= result.ledger["in_doubt"]
    assert eventually(worker.about, why="it has its lease again")["pid"] == before
    again = own_client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=steps("b", 3, 0))])', "again"))
    assert again.wait(30).status == "completed"


def test_connections_are_cut_while_busy(
    server: Any, fleet: Any, client: Client, redis: Any, crew_of: Any, trace: Any, eventually: Any
) -> None:
    """A cut connection is not a dead worker for long: it registers anew, and nothing recorded is done again."""
    fleet.start("--concurrency", "2")
    handle = client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=steps("a", 40, 0.05))])'))
    for i in (3, 10, 20):
        eventually(lambda i=i: trace.steps()[f"step a {i}"], why=f"step {i}")
        redis.client_kill_filter(_type="normal", skipme=True)
    result = handle.wait(60)
    assert result.status == "completed"
    assert trace.repeated() <= result.ledger["in_doubt"]
