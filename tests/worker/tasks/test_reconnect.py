"""A worker that lost Redis for a while comes back by itself and takes up work again."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing.fleet import children_of


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


def closed_and_watched(pid: int) -> list[int]:
    """The numbers by which a process's event loops hear of files that others have open, and it has closed."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        if str(file.readlink()) == "anon_inode:[eventpoll]":
            for line in Path(f"/proc/{pid}/fdinfo/{file.name}").read_text().splitlines():
                if line.startswith("tfd:"):
                    number, inode = line.split()[1], line.split("ino:")[1].split()[0]
                    now = Path(f"/proc/{pid}/fd/{number}")
                    if not now.exists() or now.stat().st_ino != int(inode, 16):
                        found.append(int(number))
    return found


@pytest.mark.parametrize("kind", ["normal", "pubsub"])
def test_a_connection_that_pool_children_have_open_too_is_not_waited_for_once_it_is_cut(
    kind: str, fleet: Any, client: Client, redis: Any, crew_of: Any, eventually: Any
) -> None:
    """Else its number is the next connection's, from which Celery would read, for ever, an answer that is not due."""
    # Given a worker with a child that was forked when its connections were there: it has them, too
    crew = crew_of('crew = Crew(tasks=[Task(name="a", run=steps("a", 1, 0))])')
    main = fleet.start("--concurrency", "1", "--pool", "prefork").main_pid()
    assert client.submit(crew).wait(30).status == "completed"
    (first,) = children_of(main)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: children_of(main) not in ([], [first]), why="it has another child")

    def connections() -> set[str]:
        return {one["id"] for one in redis.client_list(_type=kind) if one["name"].endswith(":celery")}

    # When they are cut, and there are others for them
    before = connections()
    redis.client_kill_filter(_type=kind, skipme=True)
    eventually(lambda: connections() - before, why="it is connected again")
    # Then its event loop hears of none of them any more, and it serves
    eventually(lambda: not closed_and_watched(main), within=5, why="it waits for what is open")
    assert client.submit(crew).wait(30).status == "completed"
    assert main in {pid for worker in fleet.workers for pid in children_of(worker.pid)}
