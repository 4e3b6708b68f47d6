"""Events that are told go with the next write: each is there once, in order, whatever is lost on the way."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError

from runner.core.errors import ClaimLost
from runner.core.ledger import AccountKey, Usage
from runner.core.output import dump
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.redis import run_events
from runner.providers.redis.outages import DelayedCalls, IdleTimer
from runner.testing import eventually

from .driver import Driver, plan_of

GPT = AccountKey("model", "A", "gpt")
EVENTS = "runner:{p0}:run:r-1:events"


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What would be sent a moment later."""
    asked: list[Callable[[], object]] = []
    monkeypatch.setattr(run_events, "call_later", lambda send, _: asked.append(send))
    return asked


@pytest.fixture
def task(driver: Driver) -> Any:
    driver.submit(plan_of("a"))
    return driver.task(driver.take()["a"])


def log(driver: Driver) -> list[tuple[str, int, int]]:
    """The events that follow the start of the task: type, and the sequences of parent and start."""
    found = list(driver.runs.events("r-1"))
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [(one.type, one.parent, one.started) for one in found[2:]]


def tell_two(task: Any) -> None:
    agent = task.defer_event("agent_execution_started", "a", ends="agent_execution_error")
    task.defer_event("llm_call_started", "a", more={"model": "m"}, parent=agent, ends="llm_call_failed")


TWO = [("agent_execution_started", 2, 0), ("llm_call_started", 3, 0)]

WRITES: dict[str, Callable[[Any], object]] = {
    "begin_step": lambda task: task.begin_step(GPT),
    "begin_steps": lambda task: task.begin_steps([BegunStep(GPT), BegunStep(GPT)]),
    "drop_step": lambda task: task.drop_step(GPT),
    "record_step": lambda task: task.record_step("s#1", "1", replayed=0),
    "record_call": lambda task: task.record_step("s#1", "1", replayed=0, entry=GPT, reported=True),
    "post_step": lambda task: task.post_step("s#1", "1", replayed=0, entry=GPT, usage=Usage(1, 1), reported=True),
    "record_steps": lambda task: task.record_steps([DoneStep("s#1", "1")], replayed=0),
    "note": lambda task: task.note("task_log", "here"),
    "append_event": lambda task: task.append_event("own", "a"),
}
ENDS: dict[str, Callable[[Any], object]] = {
    "commit": lambda task: task.commit(dump("x", None), [], replayed=0),
    "ask": lambda task: task.ask("q#1", '"what?"', replayed=0),
    "release": lambda task: task.release(replayed=0),
    "retry": lambda task: task.retry(0, "it raised", replayed=0),
    "fail": lambda task: task.fail("it raised", replayed=0),
}


def do(task: Any, write: str) -> None:
    given: Any = {**WRITES, **ENDS}[write](task)
    if write == "post_step":
        given()  # it waits for the answer


@pytest.mark.parametrize("write", [*WRITES, *ENDS])
def test_they_come_with_the_next_write(driver: Driver, task: Any, write: str) -> None:
    tell_two(task)
    assert log(driver) == []
    do(task, write)
    driver.line.settle()
    assert log(driver)[:2] == TWO


def test_they_cost_no_round_trip(driver: Driver, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.line.load(task._append.script)  # once for each connection
    asked: list[object] = []
    real = driver.line.ask
    monkeypatch.setattr(driver.line, "ask", lambda *command: asked.append(command) or real(*command))
    tell_two(task)
    task.record_step("s#1", "1", replayed=0)
    task.defer_event("llm_call_completed", "a")
    task.commit(dump("x", None), [], replayed=0)
    assert len(asked) == 2


def test_relatives_of_other_writes_are_known(driver: Driver, task: Any) -> None:
    agent = task.defer_event("agent_execution_started", "a", ends="agent_execution_error")
    call = task.defer_event("llm_call_started", "a", parent=agent, ends="llm_call_failed")
    task.record_step("s#1", "1", replayed=0)
    task.defer_event("llm_call_completed", "a", parent=agent, started=call)
    own = task.append_event("own", "a", parent=agent, cause=call)
    assert (agent.sequence, call.sequence, own) == (3, 4, 6)
    task.defer_event("agent_execution_completed", "a", started=agent)
    task.commit(dump("x", None), [], replayed=0)
    assert log(driver)[:5] == [
        *TWO, ("llm_call_completed", 3, 4), ("own", 3, 0), ("agent_execution_completed", 2, 3),
    ]  # fmt: skip
    assert log(driver)[5][0] == "task_completed", "nothing is open"


def without(line: Any, lost: str) -> None:
    """Have what is sent next without waiting lost: with its connection ``before`` it is done, or ``after``; or the
    server does not know its script."""
    real = line.send_nowait

    def send(*command: Any, heard: Any = None) -> None:
        del line.send_nowait
        if lost == "before":
            line.close()
            heard(None)
            return
        real(*command, heard=heard)
        if lost == "after":
            real("PING", heard=None)
            assert line._connection.can_read(timeout=5)  # the server has done it
            line.close()

    line.send_nowait = send


@pytest.mark.parametrize("lost", ["before", "after"])
@pytest.mark.parametrize("write", [*WRITES, *ENDS])
def test_what_is_lost_is_sent_again_and_is_there_once(driver: Driver, task: Any, write: str, lost: str) -> None:
    tell_two(task)
    without(driver.line, lost)
    do(task, write)
    if write in WRITES:
        task.defer_event("llm_call_completed", "a")
        task.commit(dump("x", None), [], replayed=0)
    kinds = [kind for kind, *_ in log(driver)]
    assert kinds.count("agent_execution_started") == kinds.count("llm_call_started") == 1
    assert kinds.count("llm_call_completed") == (write in WRITES)
    assert kinds.index("agent_execution_started") + 1 == kinds.index("llm_call_started")


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("write", [*WRITES, *ENDS])
def test_they_are_there_once_where_the_answer_to_the_write_is_lost(
    driver: Driver, task: Any, write: str, lost: int
) -> None:
    tell_two(task)
    driver.line.lose = lost
    with contextlib.suppress(ClaimLost):  # who hands a task back, and does not hear it, is refused the second time
        do(task, write)
    driver.line.lose = 0
    if write in WRITES:
        task.commit(dump("x", None), [], replayed=0)
    kinds = [kind for kind, *_ in log(driver)]
    assert kinds.count("agent_execution_started") == kinds.count("llm_call_started") == 1


@pytest.mark.parametrize("write", ["begin_step", "record_step", "commit"])
def test_a_server_that_lost_its_scripts_has_them_all_the_same(
    driver: Driver, redis: Any, task: Any, write: str
) -> None:
    tell_two(task)
    redis.script_flush()
    do(task, write)
    if write != "commit":
        task.commit(dump("x", None), [], replayed=0)
    kinds = [kind for kind, *_ in log(driver)]
    assert kinds.count("agent_execution_started") == kinds.count("llm_call_started") == 1


def test_who_lost_its_claim_tells_nothing(driver: Driver, redis: Any, task: Any) -> None:
    tell_two(task)
    redis.hset("runner:{p0}:run:r-1:branch:main:task:a", "token", 999)
    with pytest.raises(ClaimLost):
        task.commit(dump("x", None), [], replayed=0)
    assert [kind for kind, *_ in log(driver)] == ["write_refused"]


def test_they_come_by_themselves_where_nothing_is_written(
    driver: Driver, task: Any, nothing_by_itself: list[Callable[[], object]]
) -> None:
    tell_two(task)
    (send,) = nothing_by_itself
    send()
    driver.line.settle()
    assert log(driver) == TWO
    task.defer_event("llm_call_completed", "a")
    assert len(nothing_by_itself) == 2


def test_who_is_asked_later_is_asked_once_and_the_soonest_first() -> None:
    asked, done = list[int](), threading.Event()
    late = DelayedCalls()
    late(done.set, 0.2)
    late(lambda: asked.append(1) or 1 / 0, 0.1)
    late(lambda: asked.append(2), 0.0)
    assert done.wait(30)
    assert asked == [2, 1]


def test_an_idle_timer_looks_until_it_is_settled_and_shares_the_thread() -> None:
    looks, done = list[int](), threading.Event()
    late = DelayedCalls()
    timer = IdleTimer(late)

    def look() -> bool:
        looks.append(threading.get_ident())
        return len(looks) == 3

    timer(look, 0.01)
    assert timer.awake
    eventually(lambda: not timer.awake and len(looks) == 3)
    late(lambda: (looks.append(threading.get_ident()), done.set()), 0.0)
    assert done.wait(30)
    assert len(looks) == 4
    assert len(set(looks)) == 1


class Interrupted(BaseException):
    """As a stop is."""


@pytest.mark.parametrize("end", ["commit", "release"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_who_is_interrupted_while_it_appends_loses_nothing_that_was_told(
    driver: Driver, task: Any, when: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where others were to be appended next: a place among those of the one batch is none in another."""
    agent = task.defer_event("agent_execution_started", "a", ends="agent_execution_error")
    real = driver.line.execute_command

    def interrupted(*command: Any) -> None:
        monkeypatch.undo()
        if when == "after":
            real(*command)
        raise Interrupted

    monkeypatch.setattr(driver.line, "execute_command", interrupted)
    with pytest.raises(Interrupted):
        task.append_event("own", "a", parent=agent)
    task.defer_event("llm_call_started", "a", parent=agent, ends="llm_call_failed")
    do(task, end)
    assert log(driver)[:3] == [("agent_execution_started", 2, 0), ("own", 3, 0), ("llm_call_started", 3, 0)]


@pytest.mark.parametrize("write", ["begin_step", "append_event", "commit"])
def test_no_write_fails_because_of_what_was_told_and_is_refused(
    driver: Driver, task: Any, write: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = task.defer_event("agent_execution_started", "a")
    task._unsent[0] = (*task._unsent[0][:3], "x", *task._unsent[0][4:])  # no list of fields
    task.record_step("s#0", "1", replayed=0)
    task.defer_event("llm_call_started", "a", parent=agent)
    do(task, write)
    if write in WRITES:
        task.commit(dump("x", None), [], replayed=0)
    assert log(driver)[0] == ("llm_call_started", 2, 0)
    assert agent.sequence == 0
    assert len([one for one in caplog.messages if "events of" in one]) == 1


def test_one_that_is_appended_and_refused_takes_its_place_with_it(driver: Driver, task: Any) -> None:
    agent = task.defer_event("agent_execution_started", "a")
    with pytest.raises(ResponseError):
        task.append_event("own", "a", parent="x")
    task.append_event("own", "a", parent=agent)
    assert log(driver) == [("own", 2, 0)]


def test_half_a_surrogate_pair_is_told_as_a_question_mark(driver: Driver, task: Any) -> None:
    task.defer_event("llm_call_started", "a", more={"model": "m\ud83d"})
    task.append_event("own", "a", more={"model": "\ud83d"})
    assert [one.fields["model"] for one in list(driver.runs.events("r-1"))[2:]] == ["m?", "?"]


@pytest.mark.parametrize("write", ["append_event", "commit"])
def test_thousands_are_appended_a_hundred_at_a_time(driver: Driver, redis: Any, task: Any, write: str) -> None:
    first = task.defer_event("agent_execution_started", "a")
    for _ in range(250):
        task.defer_event("llm_call_completed", "a", parent=first)
    do(task, write)
    if write != "commit":
        task.commit(dump("x", None), [], replayed=0)
    found = [one for one in log(driver) if one[0] == "llm_call_completed"]
    assert found == [("llm_call_completed", 3, 0)] * 250


def test_where_no_thread_can_be_started_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    late = DelayedCalls()
    timer = IdleTimer(late)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        late(lambda: None, 0.0)
        timer(bool, 0.0)
    assert late._waiting == []
    assert not timer.awake
    done = threading.Event()
    late(done.set, 0.0)
    assert done.wait(30)
