"""A store that refuses for a while, or cuts its connections: everything waits, and nothing is done again."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.providers.redis.claimed_steps import AWAY
from runner.testing import Command, FaultProxy, Fleet, RedisServer, Refuse
from runner.testing.fault_proxy import ANSWERED

from ...support.soak import in_soak

CREW = """
    def stepping(ctx):
        hold("stepping")
        for i in range(5):
            ctx.step(f"s{i}", trace, f"step stepping {i}")

    def reading(ctx):
        hold("reading")
        return ctx.outputs["first"].raw + ctx.outputs["second"].raw

    def committing(ctx):
        hold("committing")
        return "done"

    def inside(ctx):
        def call():
            hold("inside")
            trace("step inside")
        ctx.step("call", call)

    first = Task(name="first", run=lambda ctx: "1")
    second = Task(name="second", run=lambda ctx: "2", context=[first])
    held = [Task(name=one.__name__, run=one, context=[second]) for one in (stepping, reading, committing, inside)]
    last = Task(name="last", run=lambda ctx: ctx.outputs["reading"].raw, context=held)
    crew = Crew(process=Process.graph, tasks=[first, second, *held, last])
"""
HELD = ("stepping", "reading", "committing", "inside")

REFUSALS: dict[str, tuple[list[str], list[str]]] = {
    "NOREPLICAS": (["CONFIG SET min-replicas-to-write 1"], ["CONFIG SET min-replicas-to-write 0"]),
    "OOM": (["CONFIG SET maxmemory 1"], ["CONFIG SET maxmemory 0"]),
    "READONLY": (["REPLICAOF 127.0.0.1 1"], ["REPLICAOF NO ONE"]),
    "MASTERDOWN": (
        ["CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"],
        ["REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes"],
    ),
    "MISCONF": (["CONFIG SET stop-writes-on-bgsave-error yes"], ["CONFIG SET stop-writes-on-bgsave-error no"]),
}


@contextmanager
def refusing(admin: Redis, kind: str) -> Iterator[None]:
    """While in it, the server refuses in this way."""
    begin, end = REFUSALS[kind]
    for command in begin:
        admin.execute_command(*command.split(" "))
    yield
    for command in end:
        admin.execute_command(*command.split(" "))


@pytest.fixture
def admin(own_server: RedisServer, eventually: Any) -> Iterator[Redis]:
    """Of a server that cannot save, and does not mind yet."""
    with Redis.from_url(own_server.url, decode_responses=True) as one:
        (own_server.folder / "dump.rdb").mkdir()
        one.config_set("stop-writes-on-bgsave-error", "no")
        one.config_set("save", "3600 1000000")
        one.bgsave()
        eventually(lambda: one.info("persistence")["rdb_last_bgsave_status"] == "err", why="it fails to save")
        yield one


@pytest.fixture
def at_work(own_fleet: Fleet, own_client: Client, crew_of: Any, trace: Any, eventually: Any) -> Callable[[str], Any]:
    """A run of which one task is before its steps, one before its reads, one before its commit, one in a step."""

    def submit(name: str) -> Any:
        handle = own_client.submit(crew_of(CREW, name))
        eventually(lambda: all(trace.held(label) for label in HELD), why="all four are held")
        return handle

    return submit


def nothing_happened(handle: Any, trace: Any, fleet: Fleet) -> None:
    """But that everything waited."""
    result = handle.wait(60)
    assert (result.status, result.outputs["last"]) == ("completed", "12"), result
    assert result.recoveries == 0, [event.fields for event in handle.events()]
    assert not [
        event.type for event in handle.events() if event.type in ("task_resumed", "task_retried", "write_refused")
    ]
    assert trace.steps() == {**{f"step stepping {i}": 1 for i in range(5)}, "step inside": 1}
    assert result.ledger["in_doubt"] == 0
    assert "starting another" not in fleet.log()
    assert "Traceback" not in fleet.log()


@pytest.mark.parametrize(
    ("kind", "seconds", "pool"),
    [
        *((kind, 0.2, "threads") for kind in REFUSALS),
        *(("NOREPLICAS", 2.0, "prefork"), ("MASTERDOWN", 2.0, "prefork")),  # writes alone, and everything
        *in_soak(*((kind, 2.0, "prefork") for kind in ("OOM", "READONLY", "MISCONF"))),
        *in_soak(*((kind, *other) for kind in REFUSALS for other in ((0.2, "prefork"), (2.0, "threads")))),
    ],
)
def test_a_refusal_that_passes_is_waited_for(
    kind: str, seconds: float, pool: str, admin: Redis, own_fleet: Fleet, at_work: Any, trace: Any, eventually: Any
) -> None:
    # Given four tasks at work, with a lease shorter than the longer of the refusals
    worker = own_fleet.start("--concurrency", "4", "--lease", "1", "--pool", pool)
    handle = at_work("crew")
    processes = [worker.main_pid(), *worker.children()]
    # When the store refuses just as they go on
    with refusing(admin, kind):
        trace.let_go()
        eventually(lambda: "waiting for the store: it refuses" in own_fleet.log(), why="somebody waits, and says so")
        time.sleep(seconds)
    # Then they finish, in the same processes, in their first attempt
    nothing_happened(handle, trace, own_fleet)
    assert [worker.main_pid(), *worker.children()] == processes
    # And each process said so once
    said = own_fleet.log().count("waiting for the store")
    assert said <= len(processes)
    eventually(lambda: own_fleet.log().count("the store is back") == said, why="each says that it waits no more")


@pytest.mark.parametrize("code", ["BUSY", "LOADING", "OOM"])
def test_a_worker_starts_while_the_store_refuses(
    code: str, own_server: RedisServer, crew_of: Any, eventually: Any
) -> None:
    # Given a store that refuses for a while as the worker's parent begins, as the worker does, and as its consumer does
    heard = set()

    def decide(command: Command) -> Refuse | None:
        who = "parent" if command.connection in ("", "runner") else command.connection.rpartition(":")[2]
        who = who if who in ("parent", "celery") else "worker"
        if who in heard or command.name in ANSWERED[code]:
            return None
        heard.add(who)
        return Refuse(code, 1.5)

    with FaultProxy(own_server, decide) as proxy, Fleet(proxy.url) as fleet, Client(own_server.url) as client:
        worker = fleet.start("--concurrency", "1", wait=False)
        eventually(lambda: "worker" in heard, within=60, why="the worker asks for something")
        main = worker.main_pid()
        # Then it serves, in its first process, and each time one line said that it waits, and one that it waits no more
        assert client.submit(crew_of('crew = Crew(tasks=[Task(name="a", run=lambda ctx: "1")])')).wait(60).result == "1"
        assert ("celery" in heard, worker.main_pid()) == (True, main)

        def told() -> list[str]:
            lines = fleet.log().splitlines()
            return [line for line in lines if "store" in line or "ERROR" in line or "Traceback" in line]

        # A task may be done while another connection of its worker still waits.
        said = eventually(lambda: "is back after" in (found := told())[-1] and found, why="each waits no more")
        assert len(said) >= 2
        assert ["waiting for the store: it refuses" in line for line in said] == [True, False] * (len(said) // 2), said
        assert ["the store is back after" in line for line in said] == [False, True] * (len(said) // 2), said


def test_connections_that_are_cut_again_and_again(
    server: RedisServer, fleet: Fleet, client: Client, redis: Redis, crew_of: Any, trace: Any, eventually: Any
) -> None:
    """Reads and writes of tasks, in whatever they are cut."""
    # Given a worker whose four tasks read and record all the time
    worker = fleet.start("--concurrency", "4")
    code = """
        def busy(ctx):
            hold(ctx.task.name)
            for i in range(150):
                assert ctx.outputs["first"].raw == "1"
                ctx.step(f"s{i}", trace, f"step {ctx.task.name} {i}")
            return "done"

        first = Task(name="first", run=lambda ctx: "1")
        second = Task(name="second", run=lambda ctx: "2", context=[first])
        crew = Crew(process=Process.graph, tasks=[
            first, second, *[Task(name=f"t{i}", run=busy, context=[second]) for i in range(4)]])
    """
    handle = client.submit(crew_of(code))
    eventually(lambda: all(trace.held(f"t{i}") for i in range(4)), why="all four are held")
    main = worker.main_pid()
    # When all connections are closed every few milliseconds
    trace.let_go()
    end = time.monotonic() + 30
    while handle.status == "running":
        redis.client_kill_filter(_type="normal", skipme=True)
        assert time.monotonic() < end, trace.steps()
        time.sleep(0.01)
    # Then they are done all the same, in the same worker
    result = handle.result()
    assert result.status == "completed", result
    assert trace.repeated() <= result.ledger["in_doubt"]
    assert worker.main_pid() == main
    assert "Traceback" not in fleet.log()


def test_doctor_and_show_say_what_is_waited_for(
    admin: Redis, own_fleet: Fleet, at_work: Any, trace: Any, eventually: Any
) -> None:
    own_fleet.start("--concurrency", "4")
    handle = at_work("crew")
    assert not json.loads(own_fleet.runner("show", handle.id, "--json").stdout)["waiting_for_store"]
    with refusing(admin, "OOM"):
        why = "it refuses writes, because its memory is full (OOM "
        shown = own_fleet.runner("show", handle.id)
        assert (shown.returncode, f"waiting for the store: {why}" in shown.stdout) == (0, True), shown
        assert json.loads(own_fleet.runner("show", handle.id, "--json").stdout)["waiting_for_store"].startswith(why)
        doctor = own_fleet.runner("doctor")
        assert (doctor.returncode, f"!!  writes: every task waits for it: {why}" in doctor.stdout) == (1, True), doctor
        assert "    Raise its maxmemory, or delete data it need not keep. Runs resume by themselves" in doctor.stdout
    trace.let_go()
    nothing_happened(handle, trace, own_fleet)
    assert "ok  writes: taken" in own_fleet.runner("doctor").stdout


def test_what_a_task_waits_for_the_store_is_not_of_its_time(
    admin: Redis, own_fleet: Fleet, own_client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    own_fleet.start("--concurrency", "2")
    code = """
        def run(ctx):
            hold("a")
            ctx.step("s", trace, "step a")
            return ctx.step("t", lambda: "done")
        def slow(ctx):
            hold("b")
            ctx.step("s", trace, "step b")
            time.sleep(60)
        crew = Crew(process=Process.graph, tasks=[
            Task(name="a", run=run, timeout=3), Task(name="b", run=slow, timeout=3)])
    """
    handle = own_client.submit(crew_of(code))
    eventually(lambda: trace.held("a") and trace.held("b"), why="both are held")
    with refusing(admin, "NOREPLICAS"):
        trace.let_go()
        eventually(lambda: "waiting for the store: it refuses" in own_fleet.log(), why="it waits")
        time.sleep(4)
    result = handle.wait(30)
    # The one that only waited for the store is done; the one that takes too long by itself is not
    assert result.outputs == {"a": "done"}
    assert "'b': it ran longer than its timeout of 3 s" in str(result.error)
    assert trace.steps() == {"step a": 1, "step b": 1}


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_worker_may_be_stopped_and_started_while_the_store_refuses(
    pool: str, admin: Redis, own_fleet: Fleet, at_work: Any, trace: Any, eventually: Any
) -> None:
    first = own_fleet.start("--concurrency", "4", "--pool", pool, RUNNER_DRAIN_TIMEOUT="1", RUNNER_LEASE="1")
    handle = at_work("crew")
    time.sleep(AWAY + 0.1)  # a step that begins now asks first
    with refusing(admin, "NOREPLICAS"):
        trace.let_go()
        eventually(lambda: "waiting for the store: it refuses" in own_fleet.log(), why="they wait")
        first.terminate()
        eventually(lambda: not first.alive(), within=15, why="it ends, though nothing can be handed back")
        second = own_fleet.start("--concurrency", "4", "--pool", pool, wait=False)
        eventually(lambda: "waiting for the store" in second.log.read_text(), why="the next one waits from its start")
    result = handle.wait(60)
    assert (result.status, result.outputs["last"]) == ("completed", "12"), result
    assert trace.repeated() <= result.ledger["in_doubt"]
    assert "starting another" not in own_fleet.log()
