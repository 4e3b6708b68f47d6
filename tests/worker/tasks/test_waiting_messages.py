"""For its time slice a process takes what waits in its queue by itself, and Celery sees each job all the same."""

import signal
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from runner.client import Client
from runner.client.handle import RunHandle
from runner.core.jobs import Job
from runner.core.settings import DEFAULT_QUEUE
from runner.providers.redis.envelope import message_of, read_message
from runner.providers.redis.keys import queue_of
from runner.providers.redis.pipelined import Replicas
from runner.providers.redis.store import RedisStore
from runner.tasks.app import kombu_url

POOLS = pytest.mark.parametrize("pool", ["prefork", "shared"])
FOR_LONG, NEVER = "60", "0"

HELD = 'crew = Crew(tasks=[Task(name="held", run=steps("held", 1, 0.001, held_at=0))])'
SMALL = 'crew = Crew(tasks=[Task(name="{0}", run=steps("{0}", 1, 0.001))])'
FAILS = 'crew = Crew(tasks=[Task(name="fails", run=lambda ctx: 1 / 0)])'


def of_small(crew_of: Any, *names: str) -> list[Any]:
    return [crew_of(SMALL.format(name), f"of-{name}") for name in names]


def through_the_main_process(url: str) -> int:
    """How many messages the worker has received as Celery counts them."""
    (stats,) = Celery(broker=kombu_url(url)).control.inspect(timeout=5.0).stats().values()
    return sum(stats["total"].values())


@pytest.fixture
def while_held(fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, eventually: Any) -> Any:
    """Submit these crews while the only process is at a task, and let that go when all of their messages wait."""

    def submit(*crews: Any, let_go: bool = True) -> list[RunHandle]:
        first = client.submit(crew_of(HELD))
        eventually(lambda: trace.held("held"), why="the process is at a task")
        waiting = [client.submit(crew) for crew in crews]
        eventually(lambda: redis.llen(queue_of(DEFAULT_QUEUE)) == len(crews), why="the messages wait")
        if let_go:
            trace.let_go()
            for handle in (first, *waiting):
                handle.wait(60)
        return [first, *waiting]

    return submit


@pytest.mark.parametrize(("time_slice", "received"), [(FOR_LONG, 1), (NEVER, 3)])
@POOLS
def test_what_waits_is_taken_by_the_process_that_is_done(
    pool: str, time_slice: str, received: int, fleet: Any, client: Client, crew_of: Any, reconcile: Any, while_held: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=time_slice)
    for handle in while_held(*of_small(crew_of, "a", "b")):
        reconcile(client, handle)
    assert through_the_main_process(fleet.url) == received


@POOLS
def test_what_a_process_took_with_its_commit_is_done_elsewhere_when_it_dies(
    pool: str, fleet: Any, client: Client, crew_of: Any, reconcile: Any, while_held: Any, tmp_path: Any
) -> None:
    """The store alone knows of it then: its message is gone, and the process has not begun it."""
    flag = tmp_path / "died"
    crash = f"next task claimed, not begun:{flag}"
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG, RUNNER_CRASH_AT=crash)
    first, *taken = while_held(*of_small(crew_of, "a", "b"))
    assert flag.exists()
    for handle in (first, *taken):
        reconcile(client, handle)


@POOLS
def test_celery_reports_what_failed(
    pool: str, fleet: Any, client: Client, crew_of: Any, reconcile: Any, while_held: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG)
    first, failing, last = while_held(crew_of(FAILS, "failing"), *of_small(crew_of, "b"))
    assert failing.status == "failed"
    for handle in (first, last):
        reconcile(client, handle)
    assert through_the_main_process(fleet.url) == 2, "after the failure the process waits for what it is given"


@POOLS
def test_a_worker_that_drains_leaves_what_waits(
    pool: str, fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, reconcile: Any, while_held: Any
) -> None:
    worker = fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG)
    handles = while_held(*of_small(crew_of, "a", "b"), let_go=False)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    assert not [line for line in trace.lines() if line.startswith(("task a", "task b"))], "neither was begun"
    trace.let_go()
    fleet.start("--concurrency", "1", "--pool", pool)
    for handle in handles:
        handle.wait(60)
        reconcile(client, handle)


def test_a_message_that_is_not_ours_is_left_to_celery(server: Any, redis: Redis, client: Client, crew_of: Any) -> None:
    client.submit(crew_of(SMALL.format("a")))
    store, queue = RedisStore(server.url, name="runner:w0", replicas=Replicas()), queue_of(DEFAULT_QUEUE)
    # It is not even taken for a moment: the process may be killed in that.
    for other in ("not JSON", '{"headers": {"task": "other.job"}, "body": "\\"task\\":\\"runner.job\\""}'):
        redis.rpush(queue, other)
        redis.config_resetstat()
        assert store.take(queue) is None
        assert "cmdstat_rpop" not in redis.info("commandstats")
        assert redis.rpop(queue) == other
    redis.rpush(queue, '{"headers": {"task": "runner.job"}}')
    assert store.take(queue) is None, "one of ours that is damaged is dropped, as Celery would"
    taken = store.take(queue)
    assert taken is not None
    assert taken.arguments["task"] == "a"
    assert store.take(queue) is None


def test_a_message_is_read_however_it_was_sent(server: Any, redis: Redis, client: Client, crew_of: Any) -> None:
    handle = client.submit(crew_of(SMALL.format("a")), queue="elsewhere")
    pushed = read_message(redis.lindex(queue_of("elsewhere"), -1))
    assert pushed.arguments == {"run": handle.id, "branch": "main", "task": "a", "attempt": 1}
    with Celery(broker=kombu_url(server.url)) as app:
        app.send_task("runner.job", kwargs=pushed.arguments, task_id=pushed.id, shadow=pushed.name, queue="by kombu")
    assert read_message(redis.lindex("by kombu", -1)) == pushed
    assert message_of(Job(handle.id, "main", "a", 1), "crew") == pushed
