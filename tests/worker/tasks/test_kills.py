"""Workers are killed, stopped and asked to end, and every run completes with each recorded step paid once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from runner.client import Client
from runner.tasks.pool import await_end

TASKS = """
    crew = Crew(tasks=[
        Task(name="a", run=steps("a", 8, 0.05, held_at=5)),
        Task(name="b", run=steps("b", 8, 0.05), async_execution=True),
        Task(name="c", run=steps("c", 8, 0.05), async_execution=True),
        Task(name="d", run=steps("d", 3, 0.05)),
    ])
"""


def holder(client: Client, run_id: str, fleet: Any, trace: Any, eventually: Callable[..., Any]) -> Any:
    """The worker that holds task a, after its fifth step."""
    eventually(lambda: trace.held("a"), why="the fifth step")

    def look() -> Any:
        held = {t.worker for t in client.store.runs.in_flight(run_id, "main") if t.state == "running"}
        return next((w for w in fleet.workers if w.about().get("id") in held), None)

    return eventually(look, why="a worker holds a task")


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_killed_process_group_is_noticed_and_its_task_goes_on(
    pool: str, fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    # Given two workers with the default lease and a run on one of them
    for _ in range(2):
        fleet.start("--concurrency", "2", "--pool", pool)
    handle = client.submit(crew_of(TASKS))
    # When the whole process group of that one is killed
    holder(client, handle.id, fleet, trace, eventually).kill_group()
    trace.let_go()
    # Then the run completes, the recorded steps are replayed, and it says what happened
    result = handle.wait(60)
    reconcile(client, handle)
    assert result.recoveries >= 1
    assert result.ledger["replayed"] == 5
    assert trace.repeated() == 0
    reasons = [e.fields["reason"] for e in handle.events() if e.type == "task_recovered"]
    assert "its connection closed" in reasons


def test_a_killed_pool_child_is_noticed_by_its_parent(
    fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    worker = fleet.start("--concurrency", "2")
    handle = client.submit(crew_of(TASKS))
    eventually(lambda: trace.held("a"), why="the fifth step")
    (busy,) = client.store.workers.beat(worker.about()["id"], 5000).claims
    os.kill(int(busy.process), signal.SIGKILL)
    trace.let_go()
    result = handle.wait(60)
    reconcile(client, handle)
    assert result.recoveries == 1
    assert [e.fields["reason"] for e in handle.events() if e.type == "task_recovered"] == ["its process died"]


def test_a_pool_child_that_is_stopped_alone_is_noticed_after_a_lease(
    fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    """Its worker's heart still beats: only the parent can see it."""
    worker = fleet.start("--concurrency", "2", "--lease", "2")
    handle = client.submit(crew_of(TASKS))
    eventually(lambda: trace.held("a"), why="the fifth step")
    (busy,) = client.store.workers.beat(worker.about()["id"], 2000).claims
    os.kill(int(busy.process), signal.SIGSTOP)
    trace.let_go()
    handle.wait(60)
    reconcile(client, handle)
    assert "its process died" in [e.fields["reason"] for e in handle.events() if e.type == "task_recovered"]


def test_a_pool_child_that_is_asked_to_end_alone_hands_back_and_is_replaced(
    fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    worker = fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(TASKS))
    eventually(lambda: trace.held("a"), why="the fifth step")
    (busy,) = client.store.workers.beat(worker.about()["id"], 5000).claims
    os.kill(int(busy.process), signal.SIGTERM)
    eventually(lambda: any(e.type == "task_released" for e in handle.events()), why="it hands back")
    trace.let_go()
    result = handle.wait(60)
    reconcile(client, handle)
    assert (trace.repeated(), result.ledger["in_doubt"]) == (0, 0)


@pytest.mark.parametrize("pool", ["prefork", "shared"])
@pytest.mark.parametrize("whole_group", [False, True])
def test_sigterm_hands_back_between_steps(
    pool: str, whole_group: bool, fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    for _ in range(2):
        fleet.start("--concurrency", "2", "--pool", pool)
    handle = client.submit(crew_of(TASKS))
    worker = holder(client, handle.id, fleet, trace, eventually)
    worker.signal_group(signal.SIGTERM) if whole_group else worker.terminate()
    eventually(lambda: worker.process.poll() is not None, why="the worker ends")
    assert worker.process.returncode == 0
    trace.let_go()
    result = handle.wait(60)
    reconcile(client, handle)
    # nothing is in doubt: the call in flight ended and was recorded
    assert result.ledger["in_doubt"] == 0
    assert trace.repeated() == 0
    assert any(e.type == "task_released" for e in handle.events())


def test_a_signal_inside_of_a_signals_handler_waits_for_no_lock() -> None:
    code = """
        import faulthandler; faulthandler.dump_traceback_later(30, exit=True)
        from celery.signals import worker_shutting_down
        from runner.tasks import app, steps
        steps.install(app.app)
        heard = []
        worker_shutting_down.connect(lambda **_: heard.append(1), weak=False)
        with worker_shutting_down.lock:  # where a second SIGTERM may find the first's handler
            worker_shutting_down.send(sender="w", sig="SIGTERM", how="Warm", exitcode=0)
        assert heard
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_storm_of_sigterm_is_one(
    pool: str, fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    # Each may come in the middle of the handler of the one before, where no lock may be waited for
    for _ in range(2):
        fleet.start("--concurrency", "2", "--pool", pool)
    handle = client.submit(crew_of(TASKS))
    worker = holder(client, handle.id, fleet, trace, eventually)
    pid = worker.main_pid()
    worker.terminate()
    with contextlib.suppress(ProcessLookupError):
        for _ in range(500):
            os.kill(pid, signal.SIGTERM)
    eventually(lambda: worker.process.poll() is not None, why="the worker ends")
    assert worker.process.returncode == 0
    assert "is shutting down" in worker.log.read_text()
    trace.let_go()
    handle.wait(60)
    reconcile(client, handle)
    assert trace.repeated() == 0


def test_sigterm_in_a_long_call_waits_for_drain_timeout_then_interrupts(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    # Given a task in a call that takes longer than the drain timeout
    first = fleet.start("--concurrency", "1", "--drain-timeout", "0.5")
    tasks = """
        def call():
            trace("in the call")
            time.sleep(600)
        def long(ctx):
            if ctx.attempt == 1:
                ctx.step("forever", call)
            return "done"
        crew = Crew(tasks=[Task(name="long", run=long)])
    """
    handle = client.submit(crew_of(tasks))
    eventually(lambda: "in the call" in trace.lines(), why="the call")
    first.terminate()
    eventually(lambda: first.process.poll() is not None, why="the worker ends")
    assert first.process.returncode == 0
    fleet.start("--concurrency", "1")
    result = handle.wait(60)
    assert result.status == "completed"
    # the interrupted call may have been done: it is counted
    assert result.ledger["in_doubt"] == 1
    assert result.recoveries == 1


def test_a_step_that_makes_one_call_after_another_has_its_time_to_end_before_the_worker_gives_its_tasks_up(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    first = fleet.start("--pool", "shared", "--drain-timeout", "0.1")
    tasks = """
        def calls():
            trace("in the calls")
            ended = time.monotonic() + 60
            while time.monotonic() < ended:
                time.sleep(0.01)

        def long(ctx):
            if ctx.attempt == 1:
                ctx.step("calls", calls)
            return "done"

        crew = Crew(tasks=[Task(name="long", run=long, pool="thread")])
    """
    handle = client.submit(crew_of(tasks))
    eventually(lambda: "in the calls" in trace.lines(), why="the calls")
    first.terminate()
    eventually(lambda: first.process.poll() is not None, why="the worker ends")
    assert "did not stop in time" not in first.log.read_text()
    fleet.start("--concurrency", "1")
    result = handle.wait(60)
    assert (result.status, result.ledger["in_doubt"]) == ("completed", 1)


def test_a_stopped_worker_loses_its_claim_and_its_late_write_is_refused(
    fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    for _ in range(2):
        fleet.start("--concurrency", "1", "--lease", "0.6")
    handle = client.submit(crew_of(TASKS))
    frozen = holder(client, handle.id, fleet, trace, eventually)
    frozen_id = eventually(lambda: frozen.about().get("id"), why="it has a lease")
    frozen.signal_group(signal.SIGSTOP)
    eventually(
        lambda: any(e.type == "task_recovered" and e.fields["worker"] == frozen_id for e in handle.events()),
        why="the lease lapses",
    )
    trace.let_go()
    frozen.signal_group(signal.SIGCONT)
    handle.wait(60)
    reconcile(client, handle)
    # the frozen worker is back, registered anew, and holds nothing
    eventually(lambda: frozen.about(), why="the worker registers again")


def test_late_write_is_refused(fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any) -> None:
    """A claim that was taken back while its process was in a call: the record is refused, nothing changes."""
    tasks = """
        def once(i):
            trace(f"step once {i}")
            while not os.path.exists(GO): time.sleep(0.02)
            return i
        def run(ctx):
            trace(f"task t {ctx.attempt}")
            if ctx.attempt == 1:
                ctx.step("once", once, 1)
            return f"by attempt {ctx.attempt}"
        crew = Crew(tasks=[Task(name="t", run=run)])
    """
    go = trace.path.parent / "go"
    worker = fleet.start("--concurrency", "2", "--pool", "threads")
    handle = client.submit(crew_of(tasks.replace("GO", repr(str(go)))))
    eventually(lambda: trace.steps()["step once 1"], why="the call")
    # the claim is taken back while the call goes on; another thread does the task
    (claim,) = client.store.workers.beat(worker.about()["id"], 5000).claims
    client.store.workers.reap(worker.about()["id"], process=claim.process, reason="test", max_attempts=5)
    result = handle.wait(60)
    assert result.outputs == {"t": "by attempt 2"}
    go.touch()
    eventually(lambda: any(e.type == "write_refused" for e in handle.events()), why="the late write is refused")
    assert handle.result().outputs == {"t": "by attempt 2"}
    assert (handle.result().ledger["paid"], handle.result().ledger["in_doubt"]) == (0, 1)


@pytest.mark.parametrize("step", ["", "ctx.step('look', time.time_ns),", "ctx.step('ask', str, time.time_ns()),"])
def test_poison(step: str, fleet: Any, client: Client, crew_of: Any, trace: Any) -> None:
    """A task that kills its worker again and again fails the run; it does not circulate for ever.

    Also if it records something before: the same each time, or something else.
    """
    fleet.start("--concurrency", "1", RUNNER_MAX_ATTEMPTS="3")
    tasks = f"""
        crew = Crew(tasks=[Task(name="bad", run=lambda ctx: (trace("task bad"), {step} os._exit(0)))])
    """
    result = client.submit(crew_of(tasks)).wait(60)
    assert result.status == "failed"
    assert "its worker died 3 times in a row without making progress" in str(result.error)
    assert trace.lines() == ["task bad"] * 3


def test_a_killed_redis_comes_back_and_the_run_completes(
    own_server: Any, own_fleet: Any, own_client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any
) -> None:
    for _ in range(2):
        own_fleet.start("--concurrency", "2")
    handle = own_client.submit(crew_of(TASKS))
    eventually(lambda: trace.held("a"), why="the fifth step")
    own_server.kill()
    own_server.start()
    trace.let_go()
    handle.wait(90)
    reconcile(own_client, handle)


def test_the_submitter_is_killed_and_wait_gives_the_result(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    fleet.start("--concurrency", "2")
    submitter = fleet.popen("submit", str(crew_of(TASKS)), "--json")
    eventually(lambda: trace.held("a"), why="the fifth step")
    os.killpg(submitter.pid, signal.SIGKILL)
    submitter.communicate()
    trace.let_go()
    run_id = client.runs()[0].id
    done = fleet.runner("wait", run_id, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["d"] == "0 1 2"


def test_a_dying_child_is_waited_for_until_it_can_be_replaced() -> None:
    # Celery hears of a death when the files are closed, and looks for whom to replace: that may be a moment too early.
    with subprocess.Popen(["sleep", "60"]) as child:
        assert not await_end(child.pid, within=0.01)
        child.kill()
        assert await_end(child.pid, within=30)
        assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    assert await_end(child.pid)
