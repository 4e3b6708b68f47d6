"""A worker starts its processes when its fleet first has a task for one."""

import os
import threading
from typing import Any

import pytest

from runner.client import Client
from runner.providers.redis.connection import connect
from runner.providers.redis.keys import queue_of
from runner.providers.redis.protocol import READS
from runner.providers.redis.workers import Workers
from runner.tasks import on_demand

pytestmark = pytest.mark.timeout(120)

CREWS = """
    async def awaited(ctx):
        return "thread"

    awaiting = Crew(tasks=[Task(name="t", run=awaited)])
    plainly = Crew(tasks=[Task(name="t", run=lambda ctx: "process")])
"""
AUTO = {"RUNNER_PRELOAD": ""}


def pools(client: Client) -> list[str]:
    return sorted(worker.fields["pool"] for worker in client.store.workers.alive())


def test_they_start_with_the_first_task_for_one_and_from_then_on_with_the_worker(
    fleet: Any, client: Client, crew_of: Any, eventually: Any
) -> None:
    # Given two workers of a fleet that has done tasks in the shared thread
    file = crew_of(CREWS)
    for _ in range(2):
        fleet.start("--pool", "auto", **AUTO)
    assert client.submit(f"{file}:awaiting").wait(60).result == "thread"
    assert pools(client) == ["shared"] * 2

    # When there is a task for a process, then each starts its own
    assert client.submit(f"{file}:plainly").wait(60).result == "process"
    eventually(lambda: pools(client) == ["prefork"] * 2 + ["shared"] * 2, why="both have started them")

    # And a worker that joins has them without a task, in place of those that die, too
    fleet.workers[0].kill_group()
    fleet.start("--pool", "auto", **AUTO)
    eventually(lambda: pools(client) == ["prefork"] * 2 + ["shared"] * 2, why="the third has started them")
    assert [client.submit(f"{file}:plainly").wait(60).result for _ in range(3)] == ["process"] * 3


def test_one_that_died_is_started_again(fleet: Any, client: Client, crew_of: Any, eventually: Any) -> None:
    fleet.start("--pool", "auto", **AUTO)
    file = crew_of(CREWS)
    assert client.submit(f"{file}:plainly").wait(60).result == "process"
    for pool in ("shared", "prefork"):
        before = {one.fields["pool"]: one.fields["pid"] for one in client.store.workers.alive()}
        os.kill(before[pool], 9)
        name = {"shared": "awaiting", "prefork": "plainly"}[pool]
        assert client.submit(f"{file}:{name}").wait(60).status == "completed"
        eventually(lambda: pools(client) == ["prefork", "shared"], why="both are there")  # and not one more


@pytest.mark.parametrize("settings", [{"RUNNER_PRELOAD": "anything"}, {"RUNNER_BROKER_URL": ""}])
def test_they_start_with_the_worker_where_they_import_much_or_their_jobs_cannot_be_seen(
    settings: dict[str, str], fleet: Any, client: Client, own_server: Any, eventually: Any
) -> None:
    given = {name: value or own_server.url for name, value in settings.items()}
    fleet.start("--pool", "auto", wait=False, **AUTO | given)
    eventually(lambda: "prefork" in pools(client), within=60, why="they have started")


@pytest.mark.parametrize("protocol", READS)
def test_a_job_that_is_seen_stays_where_it_is(protocol: int, redis: Any, server: Any) -> None:
    # Given one that waits for a job, and one that is not to be woken
    queue, found = queue_of("some", protocol), threading.Event()

    def wait(queue: str, found: threading.Event) -> None:
        with connect(server.url) as client:
            while not Workers(client).needs_processes(queue, 0.05):
                if ended.is_set():
                    return
        found.set()

    ended, never = threading.Event(), threading.Event()
    waiting = [threading.Thread(target=wait, args=given) for given in (("some", found), ("other", never))]
    for one in waiting:
        one.start()
    # When there are some
    redis.lpush(queue, "first", "second")
    # Then it sees them, and nobody misses one
    assert found.wait(10)
    assert redis.lrange(queue, 0, -1) == ["second", "first"]
    ended.set()
    for one in waiting:
        one.join(10)
    assert not never.is_set()
    redis.delete(queue)


def test_it_asks_once_and_says_so_to_the_fleet(
    redis: Any, server: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    monkeypatch.setattr(on_demand, "_ask", lambda now: asked.append(1) if now else None)
    redis.lpush(queue_of("some"), "job")
    first = on_demand.Processes(server.url, "some")
    first.start()
    first.join(10)
    redis.delete(queue_of("some"))
    another = on_demand.Processes(server.url, "other")  # of another queue: what it leaves may come to this one
    another.start()
    another.join(10)
    assert asked == [1, 1]


def test_the_fleet_hears_it_also_from_a_store_that_refuses_writes_at_first(
    own_server: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()
    monkeypatch.setattr(on_demand, "_ask", lambda now: asked.append(1) if now else None)
    with connect(own_server.url) as client:
        client.lpush(queue_of("some"), "job")
        client.config_set("maxmemory", 1)
        waiting = on_demand.Processes(own_server.url, "some")
        waiting.start()
        eventually(lambda: asked, why="it asks all the same")
        client.config_set("maxmemory", 0)
        waiting.join(10)
        assert client.exists("runner:{p0}:processes")
