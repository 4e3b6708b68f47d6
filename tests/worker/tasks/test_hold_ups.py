"""Who lives keeps its tasks: also where the store, or the whole machine, stood still for longer than a lease."""

import os
import signal
import time
from typing import Any

import pytest

from runner.client import Client
from runner.providers.redis.workers import Workers
from runner.testing import RedisServer

LEASE = 1.0
TASKS = """
    def call():
        trace("in the call")
        hold("call")
        return "answered"
    crew = Crew(tasks=[Task(name="one", run=lambda ctx: ctx.step("call", call))])
"""


@pytest.fixture
def in_a_call(own_server: RedisServer, own_fleet: Any, crew_of: Any, trace: Any, eventually: Any) -> Any:
    """A worker, its only task in a call, and the run."""
    worker = own_fleet.start("--concurrency", "1", "--lease", str(LEASE))
    with Client(own_server.url) as client:
        handle = client.submit(crew_of(TASKS))
        eventually(lambda: trace.held("call"), why="the call")
        yield worker, handle
        trace.let_go()


def completes_with_one_call(handle: Any, trace: Any) -> None:
    result = handle.wait(60)
    told = [(event.type, event.fields.get("reason")) for event in handle.events()]
    assert (result.recoveries, result.ledger["in_doubt"], trace.held("call")) == (0, 0, 1), told


def test_a_store_that_stands_still_until_heartbeats_give_up_takes_no_task(
    in_a_call: Any, own_server: Any, own_fleet: Any, trace: Any, eventually: Any
) -> None:
    """The heartbeat closes its connection then, and the supervisor, which waits for longer, only has a late answer."""
    worker, handle = in_a_call
    before = worker.about()["client_id"]
    own_server.process.send_signal(signal.SIGSTOP)
    eventually(lambda: "waiting for the store" in own_fleet.log(), why="the heartbeat has given up twice")
    own_server.process.send_signal(signal.SIGCONT)
    eventually(lambda: worker.about().get("client_id", before) != before, why="it is back")
    trace.let_go()
    completes_with_one_call(handle, trace)


def test_a_machine_that_stands_still_for_a_lease_takes_no_task(
    in_a_call: Any, own_server: Any, trace: Any, eventually: Any
) -> None:
    """Nobody could beat, nor look: the lease has run out for all of them at once, when they go on."""
    worker, handle = in_a_call
    for _ in range(3):
        lapses = worker.redis.time()[0] + LEASE
        worker.signal_group(signal.SIGSTOP)
        eventually(lambda lapses=lapses: time.time() > lapses + 1, why="its lease has run out")
        worker.signal_group(signal.SIGCONT)
        eventually(lambda: Workers(worker.redis).alive(), why="it beats again")
    trace.let_go()
    completes_with_one_call(handle, trace)


def test_a_worker_that_lost_its_connection_keeps_its_tasks(
    own_server: RedisServer, own_fleet: Any, crew_of: Any, trace: Any, eventually: Any
) -> None:
    """However slow it is to have another, within its lease: that it lives is seen on its machine."""
    # Given a worker with a task in a call, and another one, whose supervisor leads
    other = own_fleet.start("--concurrency", "1", "--queue", "another")
    workers = Workers(other.redis)
    eventually(lambda: workers.leader().startswith(other.about()["id"]), why="it leads")
    worker = own_fleet.start("--concurrency", "1", "--lease", "30")
    with Client(own_server.url) as client:
        handle = client.submit(crew_of(TASKS))
        eventually(lambda: trace.held("call"), why="the call")

        def looks() -> int:
            return int(other.redis.info("commandstats")["cmdstat_client|list"]["calls"])

        # When its connection is closed, and others look for it, again and again, before it can have another
        os.kill(worker.main_pid(), signal.SIGSTOP)
        before, client_id = looks(), worker.about()["client_id"]
        other.redis.client_kill_filter(_id=client_id)
        eventually(lambda: looks() > before + 20, why="they look")
        os.kill(worker.main_pid(), signal.SIGCONT)
        eventually(lambda: worker.about()["client_id"] != client_id, why="it has another")
        # Then it keeps the task
        trace.let_go()
        completes_with_one_call(handle, trace)
