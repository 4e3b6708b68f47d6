"""The watch over a worker looks at what moves, not at what it happens to see: who is busy is left alone."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from redis import Redis

from runner.client import Client
from runner.core.settings import DEFAULT_QUEUE
from runner.providers.redis.keys import queue_of
from runner.tasks import app as celery_side
from runner.tasks.broker import CeleryBroker
from runner.tasks.heartbeat import Stall
from runner.tasks.stops import RECHECK
from runner.testing import RedisServer, children_of

STALL = 2.0
MANY = """
    crew = Crew(process=Process.graph, tasks=[Task(name=f"t{i}", run=lambda ctx: "x") for i in range(60)])
"""


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_backlog_of_tasks_of_milliseconds_is_no_stall(
    pool: str, fleet: Any, client: Client, redis: Redis, crew_of: Any, eventually: Any
) -> None:
    # Given a worker with more slots than it can fill, so that some are free at every look
    worker = fleet.start("--concurrency", "4", "--pool", pool, RUNNER_STALL=str(STALL))
    main = worker.main_pid()
    # When there is a backlog for three times as long as a stall lasts
    crew, end = crew_of(MANY), time.monotonic() + 3 * STALL
    handles = []
    while time.monotonic() < end:
        handles.append(client.submit(crew))
        eventually(lambda: redis.llen(queue_of(DEFAULT_QUEUE)) < 20, why="the backlog gets short")
    # Then it all gets done, by the process that began
    assert {handle.wait(60).status for handle in handles} == {"completed"}
    assert "restarting this worker" not in fleet.log()
    assert worker.main_pid() == main


def test_a_worker_that_stopped_consuming_is_restarted(
    server: Any, fleet: Any, client: Client, crew_of: Any, eventually: Any
) -> None:
    worker = fleet.start("--concurrency", "1", RUNNER_STALL=str(STALL))
    main = worker.main_pid()
    with Celery(broker=celery_side.kombu_url(server.url)) as app:
        eventually(
            lambda: "no longer" in str(app.control.cancel_consumer(queue_of(DEFAULT_QUEUE), reply=True)),
            why="it stops consuming",
        )
    handle = client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "x")])'))
    assert handle.wait(60).status == "completed"
    assert "1 job(s) are queued, slots are free, and none was claimed for 2 s" in fleet.log()
    eventually(lambda: set(children_of(worker.pid)) - {main}, why="another process does it")


STANDS_STILL = """
import signal, threading
from runner.tasks import steps

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # in no thread is it heard
steps.MARGIN = 0.1
threading.Thread(target=steps._restart, args=("it consumes nothing",)).start()
threading.Event().wait()
"""


def test_a_worker_that_does_not_hear_that_it_is_to_restart_is_ended() -> None:
    """Then its parent starts another, and its claims are taken back as those of one that died."""
    ended = subprocess.run(
        [sys.executable, "-c", STANDS_STILL], env={**os.environ, "RUNNER_DRAIN_TIMEOUT": "0"},
        timeout=60, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 75, ended.stderr


def test_a_stall_is_time_in_which_nothing_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stall = Stall(2)

    def look(at: float, *, idle: bool = True, moved: int = 0) -> bool:
        now[0] = at
        return stall.stands(idle=idle, moved=moved)

    assert not any(look(at, moved=at) for at in range(10)), "something was taken between any two looks"
    assert not any([look(10, moved=9), look(11, moved=9)])
    assert look(11.5, moved=9)
    assert not look(12, moved=9), "once told, it starts anew"
    assert not any([look(13, moved=9, idle=False), look(14.5, moved=9)])
    assert look(15.1, moved=9)


def test_a_child_that_was_stopped_while_it_had_nothing_to_do_goes(
    fleet: Any, client: Client, crew_of: Any, eventually: Any
) -> None:
    """It would be given jobs, and do none."""
    worker = fleet.start("--concurrency", "1", "--lease", "0.5")
    (child,) = eventually(worker.children, why="the pool is up")
    os.kill(child, signal.SIGSTOP)
    eventually(lambda: worker.children() not in ([], [child]), why="another takes its place")
    handle = client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "x")])'))
    assert handle.wait(30).status == "completed"


def test_a_child_that_is_told_to_look_at_its_claims_before_it_has_begun_any_stays(
    fleet: Any, client: Client, crew_of: Any, eventually: Any
) -> None:
    """As where its worker's lease was lost in that moment."""
    worker = fleet.start("--concurrency", "1")
    (child,) = eventually(worker.children, why="the pool is up")
    os.kill(child, signal.SIGKILL)

    def listens() -> bool:
        for pid in worker.children():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(pid, RECHECK)
                caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
                if pid != child and caught and int(caught[1], 16) >> (RECHECK - 1) & 1:
                    return True
        return False

    eventually(listens, why="the one that replaces it has begun")
    handle = client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "x")])'))
    assert handle.wait(60).status == "completed"
    assert fleet.log().count("exited with 'signal") == 1, fleet.log()


def test_a_job_that_waits_in_another_brokers_queue_is_not_sent_again(
    fleet: Any, crew_of: Any, server: Any, redis: Redis, eventually: Any
) -> None:
    """Where the state's Redis does not see the queue, the broker is asked."""
    with RedisServer() as broker, Redis.from_url(broker.url) as other:
        url, late = celery_side.kombu_url(broker.url), queue_of("late")
        # Given jobs in a queue that nobody serves, on a broker of its own, and a worker of another queue that leads
        fleet.start("--concurrency", "1", "--broker-url", url, RUNNER_RESEND_AFTER="0.05")
        crew = crew_of("""
            crew = Crew(process=Process.graph, tasks=[Task(name=f"t{i}", run=lambda ctx: "x") for i in range(5)])
        """)
        done = fleet.runner("submit", str(crew), "--broker-url", url, "--queue", "late", "--detach")
        assert done.returncode == 0, done.stderr
        eventually(lambda: other.llen(late) == 5, why="they are sent")

        def looked_at() -> float:
            return min(score for _, score in redis.zrange("runner:{p0}:queued", 0, -1, withscores=True))

        # When they were looked at again and again
        for _ in range(4):
            before = looked_at()
            eventually(lambda before=before: looked_at() > before, why="they are looked at")
        # Then each waits there once; and what is lost with the queue is sent again
        assert other.llen(late) == 5
        other.delete(late)
        eventually(lambda: other.llen(late) == 5, why="they are sent again")


def test_how_long_a_queue_is_says_the_broker(tmp_path: Path) -> None:
    with Celery(broker="memory://") as memory:
        depth = CeleryBroker(memory).depth
        assert depth("q") == 0, "there is no such queue"
        with memory.connection_for_write() as connection, connection.SimpleQueue("q") as queue:
            for i in range(3):
                queue.put({"i": i})
            assert depth("q") == 3
    with Celery(broker=f"redis+socket://{tmp_path}/nobody") as nobody:
        assert CeleryBroker(nobody).depth("q") is None, "nobody answers"
