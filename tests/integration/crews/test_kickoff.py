"""``crew.kickoff()``: the same crew in this process."""

import asyncio
import gc
import signal
import socket
import threading
import time
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel

from runner import CheckpointConfig, Crew, Process, Task
from runner.core import backoff
from runner.core.errors import BadCrew, BadInput, TaskTimeout
from runner.events import BaseEvent, event_bus


def done(text: str) -> Any:
    return lambda ctx: text


class Count(BaseModel):
    letters: int


def count(ctx: Any) -> Count:
    return Count(letters=sum(len(o.raw) for o in ctx.context))


def test_the_outputs():
    crew = Crew(tasks=[Task(name="a", run=done("one")), Task(name="b", run=done("three")), Task(name="c", run=count)])
    result = crew.kickoff()
    assert str(result) == result.raw == '{"letters":8}'
    assert result.json_dict == {"letters": 8}
    assert result.pydantic == Count(letters=8)
    assert [(o.name, o.raw) for o in result.tasks_output] == [("a", "one"), ("b", "three"), ("c", '{"letters":8}')]
    assert crew.tasks[0].output is not None
    assert crew.tasks[0].output.raw == "one"


def test_the_result_is_the_last_tasks_in_the_file_whatever_ended_last():
    last = Task(name="last", run=done("result"))
    crew = Crew(tasks=[Task(name="a", run=done("a"), context=[last]), last], process=Process.graph)
    assert crew.kickoff().raw == "result"


def test_inputs():
    crew = Crew(
        tasks=[Task(name="a", description="On {topic}", run=lambda ctx: f"{ctx.task.description}: {ctx.inputs}")]
    )
    assert crew.kickoff({"topic": "owls", "n": 3}).raw == "On owls: {'topic': 'owls', 'n': 3}"
    assert asyncio.run(crew.kickoff_async({"topic": "hens"})).raw == "On hens: {'topic': 'hens'}"
    with pytest.raises(BadInput, match=r"^the crew needs the input 'topic': give it with --input topic="):
        crew.kickoff()
    with pytest.raises(BadInput, match="'topic'"):
        crew.kickoff({"tpoic": "owls"})


def test_one_tasks_inputs_are_its_own():
    def spoil(ctx: Any) -> str:
        ctx.inputs["topic"] = "spoiled"
        return ""

    crew = Crew(tasks=[Task(name="a", run=spoil), Task(name="b", run=lambda ctx: ctx.inputs["topic"])])
    given = {"topic": "owls"}
    assert crew.kickoff(given).raw == "owls"
    assert given == {"topic": "owls"}


def test_a_crew_that_cannot_run_says_so_at_once():
    with pytest.raises(BadCrew, match="the crew has no tasks"):
        Crew().kickoff()


@pytest.mark.parametrize("process", [Process.sequential, Process.graph])
def test_tasks_side_by_side_really_are(process):
    """Each of three waits for the other two: one after the other they would never meet."""
    meet = threading.Barrier(3, timeout=20)

    def work(ctx: Any) -> str:
        meet.wait()
        return ctx.task.name

    side = [Task(name=name, run=work, context=[], async_execution=process is Process.sequential) for name in "abc"]
    crew = Crew(tasks=[*side, Task(name="d", run=lambda ctx: "".join(o.raw for o in ctx.context), context=side)],
                process=process)  # fmt: skip
    assert crew.kickoff().raw == "abc"


def test_a_retry_keeps_the_steps(monkeypatch):
    paid, asked = [], []
    monkeypatch.setattr(backoff, "delay", lambda *about: asked.append(about) or 0.0)

    def flaky(ctx: Any) -> str:
        ctx.step("pay", paid.append, ctx.inputs["n"])
        if ctx.attempt < 3:
            raise ConnectionError(ctx.attempt)
        return f"attempt {ctx.attempt}"

    crew = Crew(tasks=[Task(name="a", run=flaky, max_retries=2, retry_delay=4)])
    assert crew.kickoff({"n": 7}).raw == "attempt 3"
    assert paid == [7], "paid once"
    assert asked == [(1, 4.0), (2, 4.0)]


def test_ctrl_c_does_not_wait_for_the_next_attempt(monkeypatch):
    tries = []

    def interrupt(*_: Any) -> float:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return 3600.0

    def fail(ctx: Any) -> None:
        tries.append(ctx.attempt)
        raise LookupError

    monkeypatch.setattr(backoff, "delay", interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Crew(tasks=[Task(name="a", run=fail, max_retries=1)]).kickoff()
    finally:
        signal.signal(signal.SIGINT, before)
    assert tries == [1]


def test_what_is_not_installed_is_not_tried_again():
    tries = []

    def fail(ctx: Any) -> None:
        tries.append(ctx.attempt)
        import no_such_module_at_all  # noqa: F401 - it raises

    with pytest.raises(ImportError):
        Crew(tasks=[Task(name="a", run=fail, max_retries=3)]).kickoff()
    assert tries == [1]


def test_what_a_task_raises_comes_out_once_its_attempts_are_used_up():
    tries = []

    def fail(ctx: Any) -> str:
        tries.append(ctx.attempt)
        raise LookupError("no such page")

    after = []
    crew = Crew(tasks=[Task(name="a", run=fail, max_retries=1, retry_delay=0), Task(name="b", run=after.append)])
    with pytest.raises(LookupError, match="no such page"):
        crew.kickoff()
    assert tries == [1, 2]
    assert after == []


def test_a_failure_waits_for_what_is_in_flight():
    ended = []
    failed = threading.Event()

    def fail(ctx: Any) -> str:
        failed.set()
        raise LookupError

    def slow(ctx: Any) -> str:
        failed.wait(20)
        ended.append(1)
        return ""

    crew = Crew(tasks=[Task(name="a", run=slow, async_execution=True), Task(name="b", run=fail, async_execution=True)])
    with pytest.raises(LookupError):
        crew.kickoff()
    assert ended == [1]


def test_output_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Crew(
        tasks=[
            Task(name="a", run=done("ä text"), output_file="deep/{topic}.md"),
            Task(name="b", run=lambda ctx: {"n": 1}, output_file=str(tmp_path / "b.json")),
        ]
    ).kickoff({"topic": "owls"})
    assert (tmp_path / "deep/owls.md").read_text("utf-8") == "ä text"
    assert (tmp_path / "b.json").read_text() == '{"n": 1}'


def test_many_runs_leave_nothing_behind():
    """Nothing is recorded that nobody asked for."""

    def work(ctx: Any) -> str:
        ctx.log("a line")
        return ctx.step("grow", lambda: "x" * 2000)

    crew = Crew(tasks=[Task(name="a", run=work), Task(name="b", run=done("y" * 2000))])

    def runs(count: int) -> int:
        for _ in range(count):
            crew.kickoff({"n": 1})
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    threads = threading.active_count()
    tracemalloc.start()
    try:
        runs(60)
        held = [runs(0), runs(200), runs(200)]
    finally:
        tracemalloc.stop()
    grown = [after - before for before, after in pairwise(held)]
    assert min(grown) < 10_000, "under 50 bytes a run; a table of the whole session may double meanwhile, once"
    assert threading.active_count() <= threads


def test_a_task_that_runs_longer_than_its_timeout_fails():
    def spin(ctx):
        try:
            while True:
                time.sleep(0.01)
        except Exception:
            return "swallowed"

    crew = Crew(tasks=[Task(name="slow", run=spin, timeout=0.1)])
    with pytest.raises(TaskTimeout, match=r"it ran longer than its timeout of 0\.1 s"):
        crew.kickoff()


def test_a_timeout_is_met_when_a_blocking_call_returns():
    let_go, gone = threading.Event(), threading.Event()
    ours, theirs = socket.socketpair()

    def release():
        let_go.wait()
        time.sleep(0.3)  # its time is long up
        gone.set()
        theirs.send(b"x")

    def work(ctx):
        let_go.set()
        ours.recv(1)

    other = threading.Thread(target=release)
    other.start()
    with ours, theirs:
        with pytest.raises(TaskTimeout):
            Crew(tasks=[Task(name="slow", run=work, timeout=0.05)]).kickoff()
        assert gone.is_set(), "nothing broke into the call"
        other.join()


def test_a_task_that_catches_all_swallows_its_timeout():
    def spin(ctx):
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            return "swallowed"

    assert Crew(tasks=[Task(name="slow", run=spin, timeout=0.1)]).kickoff().raw == "swallowed"


# What comes in a destructor or a weak reference's callback is printed and lost, and said again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("recorded", [False, True])
def test_a_timeout_breaks_in_whatever_the_task_is_at(recorded, tmp_path):
    """It may be telling, recording, starting a thread or waiting for one: no lock stays taken, no thread unborn."""
    settings = CheckpointConfig(location=str(tmp_path), on_events=["crew_kickoff_failed"], max_checkpoints=1)

    def work(ctx):
        inner = Crew(tasks=[Task(name="x", run=lambda ctx: ctx.step("s", int, 1))])
        while True:
            event_bus.emit(None, BaseEvent(type="mine"))
            inner.kickoff()

    for i in range(40):
        slow = Task(name="slow", run=work, timeout=0.01 + 0.0005 * i)
        with pytest.raises(TaskTimeout):
            Crew(tasks=[slow], checkpoint=settings if recorded else None).kickoff()
