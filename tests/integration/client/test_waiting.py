"""What a client that waits for a run reads of it: how it stands, and its result once; no events."""

import threading
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.client.handle import Pace, RunResult, result_of
from runner.core.errors import NotFound
from runner.providers.redis import keys
from runner.providers.redis.workers import Workers
from runner.testing import eventually
from runner.testing.clock import ManualClock

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
    handle.client.store.runs.progress(handle.id, after="0", block_ms=10_000)
    with Client(client.store.url) as other:
        other.run(handle.id).cancel()
    waits.join(30)
    assert not waits.is_alive()
    assert "xrange" not in calls(redis)


def test_who_waits_for_a_branch_that_is_gone_hears_that_it_failed(
    client: Client, redis: Redis, write_crew: Any
) -> None:
    handle = client.submit(write_crew(CREW))
    redis.delete(keys.branch_key(handle.id, "main"))
    found: list[RunResult] = []
    waits = threading.Thread(target=lambda: found.append(client.run(handle.id, "main").wait()))
    waits.start()
    eventually(lambda: calls(redis).get("sismember"), why="it meets no branch")
    assert Workers(redis).check_runs(0)[1]
    waits.join(30)
    assert found[0].status == "failed"
    assert "branch 'main' is gone from the store" in str(found[0].error)


@pytest.mark.parametrize(("of_each", "most"), [(0.0005, 10), (0.001, 15), (0.03, 100), (7.0, 101)])
def test_who_waits_looks_ever_sooner_toward_the_end(of_each: float, most: int) -> None:
    """Not with each event, and the end of the run is seen as it comes."""
    clock = ManualClock()
    pace, began, looks, seen = Pace(clock), clock.monotonic(), 0, 0
    while seen < 100:
        looks += 1
        clock.advance(pace.rest(100 - seen))
        if (done := int((clock.monotonic() - began) / of_each)) == seen:  # it listens until the next task is done
            clock.advance(began + (seen + 1) * of_each - clock.monotonic() + 1e-6)
            done += 1
        seen = done
    assert looks <= most
    assert clock.monotonic() - began <= 100 * of_each + 0.001


@pytest.mark.parametrize(("of_each", "most"), [(0.0006, 25), (0.03, 250), (7.0, 300)])
def test_who_waits_for_a_batch_looks_by_the_pace_of_its_runs(of_each: float, most: int) -> None:
    clock = ManualClock()
    pace, began, looks, over = Pace(clock), clock.monotonic(), 1, 1
    clock.advance(of_each)
    while over < 300:
        looks += 1
        clock.advance(pace.rest(300 - over, over))
        if (ended := int((clock.monotonic() - began) / of_each + 1e-6)) == over:  # it listens until the next is over
            clock.advance(began + (over + 1) * of_each - clock.monotonic() + 1e-6)
            ended += 1
        over = ended
    assert looks <= most
    assert clock.monotonic() - began <= 300 * of_each + 0.001


def test_how_a_branch_stands_is_one_question(client: Client, redis: Redis, write_crew: Any) -> None:
    handle = client.submit(write_crew(CREW))
    runs = client.store.runs
    redis.config_resetstat()
    status, left, last = runs.progress(handle.id)
    assert (status.value, left, last) == ("running", 1, runs.last_event(handle.id))
    asked = redis.info("commandstats")
    assert runs.progress(handle.id, after=last, block_ms=1) == (status, 1, last)
    assert [int(asked[f"cmdstat_{one}"]["calls"]) for one in ("xrevrange", "hmget")] == [2, 2], "and with last_event"
    client.run(handle.id).fork(branch="other")
    assert runs.progress(handle.id, "other")[:2] == runs.progress(handle.id)[:2] == (status, 1)
    runs.cancel(handle.id, "in this test", "other")
    assert runs.progress(handle.id, "other")[0].value == "cancelled"
    assert runs.progress(handle.id, "main")[:2] == (status, 1)
    assert runs.progress(handle.id)[0] == runs.standing(handle.id)[0]
    with pytest.raises(NotFound):
        runs.progress("r-none")


def test_a_plan_is_read_once_for_all_results_of_it(client: Client, redis: Redis, write_crew: Any) -> None:
    path: Path = write_crew(CREW)
    handles = [client.submit(path) for _ in range(3)]
    for handle in handles:
        handle.cancel()
    handles[0].result()
    redis.config_resetstat()
    assert [handle.result().status for handle in handles] == ["cancelled"] * 3
    assert "get" not in calls(redis), "where a plan stands that no bundle has"


def test_the_results_of_a_batch_are_those_of_its_runs(client: Client, redis: Redis, write_crew: Any) -> None:
    path: Path = write_crew(CREW)
    handles = [client.submit(path) for _ in range(3)]
    handles[0].cancel()
    redis.hset(keys.run_key(handles[1].id), "branch", "other")
    read = client.store.batches.read([handle.id for handle in handles])
    assert read.keys() == {handles[0].id, handles[2].id}, "who is on another branch now is read by itself"
    for run_id, one in read.items():
        assert result_of(client.store.runs, run_id, read=one) == client.run(run_id).result()
