"""What a client that waits for a run reads of it: how it stands, and its result once; no events."""

import threading
from pathlib import Path
from typing import Any

from redis import Redis

from runner.client import Client

CREW = """
    from runner import Crew, Task

    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "done")])
    """


def calls(redis: Redis) -> dict[str, int]:
    """How often the server was asked what, since its counts were reset."""
    return {name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in redis.info("commandstats").items()}


def test_who_waits_without_a_listener_reads_no_events(client: Client, redis: Redis, write_crew: Any) -> None:
    path: Path = write_crew(CREW)
    handle = client.submit(path)
    redis.config_resetstat()
    waits = threading.Thread(target=handle.wait)
    waits.start()
    handle.client.store.runs.await_event(handle.id, "0", 10_000)
    with Client(client.store.url) as other:
        other.run(handle.id).cancel()
    waits.join(30)
    assert not waits.is_alive()
    assert "xrange" not in calls(redis)


def test_a_plan_is_read_once_for_all_results_of_it(client: Client, redis: Redis, write_crew: Any) -> None:
    path: Path = write_crew(CREW)
    handles = [client.submit(path) for _ in range(3)]
    for handle in handles:
        handle.cancel()
    handles[0].result()
    redis.config_resetstat()
    assert [handle.result().status for handle in handles] == ["cancelled"] * 3
    assert "get" not in calls(redis), "where a plan stands that no bundle has"
