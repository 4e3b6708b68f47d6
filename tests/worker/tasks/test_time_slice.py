"""A run continues where it is: a process that commits a task does the next one without a message, for a time slice."""

import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from runner.client import Client
from runner.providers.redis import keys
from runner.tasks.app import kombu_url

POOLS = pytest.mark.parametrize("pool", ["prefork", "shared"])
FOR_LONG, NEVER = "60", "0"

CHAIN = """
    crew = Crew(tasks=[Task(name=f"t{number}", run=steps(f"t{number}", 1, 0.001)) for number in range(8)])
"""
DIAMOND = """
    first = Task(name="first", run=steps("first", 1, 0.001))
    beside = [Task(name=name, run=steps(name, 1, 0.001), context=[first], async_execution=True) for name in "abc"]
    crew = Crew(tasks=[first, *beside, Task(name="last", run=steps("last", 1, 0.001), context=beside)])
"""
HANDLED = """
    from celery.signals import task_prerun, task_success

    def noted(kind):
        return lambda task_id=None, sender=None, **_: trace(f"{kind} {task_id or sender.request.id}")

    def first(ctx):
        for kind, signal in (("prerun", task_prerun), ("success", task_success)):
            signal.connect(noted(kind), weak=False)
        return ""

    crew = Crew(tasks=[Task(name="t0", run=first), *(Task(name=f"t{n}", run=lambda ctx: "") for n in (1, 2))])
"""
UNHEARD = """
    import sys

    from celery import current_task
    from celery.signals import task_failure

    called = []

    def count(frame, event, argument):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith(("celery.", "kombu.")) and not name.startswith("celery.utils.log"):
            called.append(frame.f_code.co_name)

    def counted(ctx):
        task_failure.connect(lambda task_id=None, **_: trace(f"failed {task_id}"), weak=False)
        trace(f"is {current_task.request.id} {current_task.request.kwargs['task']} {current_task.request.shadow}")
        sys.setprofile(count)

    def looked(ctx):
        sys.setprofile(None)
        trace(f"of Celery {len(called)}")
        return 1 / 0

    crew = Crew(tasks=[Task(name="t0", run=lambda ctx: ""), Task(name="t1", run=counted), Task(name="t2", run=looked)])
"""


def messages(redis: Redis, run: str) -> int:
    """How many were sent for a run."""
    return int(redis.hget(keys.run_key(run), "sends") or 0)


@POOLS
def test_a_sequence_needs_one_message(
    pool: str, fleet: Any, client: Client, redis: Redis, crew_of: Any, reconcile: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG)
    handle = client.submit(crew_of(CHAIN))
    handle.wait(60)
    reconcile(client, handle)
    assert messages(redis, handle.id) == 1


@pytest.mark.parametrize(("time_slice", "seconds"), [(NEVER, "0.001"), ("0.05", "0.06")])
def test_without_a_slice_or_after_it_each_task_goes_through_the_broker(
    time_slice: str, seconds: str, fleet: Any, client: Client, redis: Redis, crew_of: Any, reconcile: Any
) -> None:
    fleet.start("--concurrency", "1", RUNNER_TIME_SLICE=time_slice)
    handle = client.submit(crew_of(CHAIN.replace("0.001", seconds)))
    handle.wait(60)
    reconcile(client, handle)
    assert messages(redis, handle.id) == 8


@POOLS
def test_of_several_that_become_ready_the_others_are_sent(
    pool: str, fleet: Any, client: Client, redis: Redis, crew_of: Any, reconcile: Any
) -> None:
    fleet.start("--concurrency", "2", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG)
    handle = client.submit(crew_of(DIAMOND))
    handle.wait(60)
    reconcile(client, handle)
    assert messages(redis, handle.id) == 3, "the first one, and two of the three after it"


@contextmanager
def listening(app: Celery, told: dict[str, list[tuple[str, str | None]]]) -> Iterator[None]:
    """While in it, what Celery tells of each job is noted: the type of an event, and the job's name where it has it."""
    kinds = ("received", "started", "succeeded", "failed", "retried")
    with app.connection_for_read() as connection:
        note = {f"task-{kind}": lambda event: told[event["uuid"]].append((event["type"], event.get("name")))
                for kind in kinds}  # fmt: skip
        receiver = app.events.Receiver(connection, handlers=note)
        listens = threading.Event()
        receiver.on_consume_ready = lambda *_, **__: listens.set()
        thread = threading.Thread(target=receiver.capture, kwargs={"limit": None, "wakeup": False}, daemon=True)
        thread.start()
        assert listens.wait(30)
        yield
        receiver.should_stop = True
        thread.join(30)
    assert not thread.is_alive()


@POOLS
def test_celery_sees_each_job(
    pool: str, fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, eventually: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG)
    app, told = Celery(broker=kombu_url(fleet.url)), defaultdict(list)
    with listening(app, told):
        eventually(lambda: app.control.enable_events(reply=True), why="the worker heard it")
        handle = client.submit(crew_of(HANDLED))
        handle.wait(60)
        eventually(lambda: sum(map(len, told.values())) >= 9, why="all events")
    jobs = [f"{handle.id}.main.t{number}.1" for number in range(3)]
    assert told == {
        job: [("task-received", f"crew.t{number}"), ("task-started", None), ("task-succeeded", None)]
        for number, job in enumerate(jobs)
    }
    eventually(lambda: f"success {jobs[2]}" in trace.lines(), why="the last signal")
    _, second, third = jobs
    assert trace.lines()[-4:] == [f"prerun {second}", f"success {second}", f"prerun {third}", f"success {third}"]
    assert messages(redis, handle.id) == 1


def test_where_nothing_receives_what_celery_reports_its_part_of_a_job_is_small(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    """What it says of the job that is being done is of that job all the same, also where it fails."""
    fleet.start("--concurrency", "1", "--pool", "prefork", RUNNER_TIME_SLICE=FOR_LONG)
    handle = client.submit(crew_of(UNHEARD))
    assert handle.wait(60).status == "failed"
    eventually(lambda: len(trace.lines()) == 3, why="Celery reported the failure")
    of_job, of_celery, failed = trace.lines()
    assert of_job == f"is {handle.id}.main.t1.1 t1 crew.t1"
    assert 0 <= int(of_celery.removeprefix("of Celery ")) <= 12
    assert failed == f"failed {handle.id}.main.t2.1"


@POOLS
def test_a_worker_that_drains_continues_with_nothing(
    pool: str, fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    worker = fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG)
    handle = client.submit(crew_of(CHAIN.replace("1, 0.001", "2, 0.001, held_at=1 if number == 3 else -1")))
    eventually(lambda: trace.held("t3"), why="the fourth task")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    trace.let_go()
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_TIME_SLICE=FOR_LONG)
    handle.wait(60)
    reconcile(client, handle)
    assert trace.repeated() == 0


@POOLS
def test_a_heartbeat_sees_that_it_does_what_it_claimed_with_a_commit(
    pool: str, fleet: Any, client: Client, redis: Redis, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", pool, "--lease", "0.5", RUNNER_TIME_SLICE=FOR_LONG)
    handle = client.submit(crew_of(CHAIN.replace("1, 0.001", "2, 0.001, held_at=1 if number == 3 else -1")))
    eventually(lambda: trace.held("t3"), why="the fourth task")
    (about,) = redis.keys("runner:{p0}:worker:*")
    beats = int(redis.hget(about, "beats"))
    eventually(lambda: int(redis.hget(about, "beats")) > beats + 4, why="five heartbeats")
    trace.let_go()
    handle.wait(60)
    reconcile(client, handle)
    assert "task_recovered" not in {event.type for event in handle.events()}
    assert trace.repeated() == 0
