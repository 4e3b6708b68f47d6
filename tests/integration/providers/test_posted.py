"""The record of a call, or of several steps, whose acknowledgement is waited for later."""

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from runner.core.errors import ClaimLost
from runner.core.ledger import STEP, AccountKey, Usage
from runner.core.output import dump
from runner.journal.recorder import BegunStep, DoneStep
from runner.llm.recording.httpx_transport import _Exchange, _pieces
from runner.providers.redis import claimed_steps
from runner.providers.redis.outages import IdleTimer

from .driver import Driver
from .test_reserved import ENDS, Scene

GPT = AccountKey("model", "A", "gpt")


class Call:
    """One call."""

    more, tokens, open = 1, 10, 0

    def begin(self, scene: Scene) -> None:
        """It leaves."""
        scene.task.begin_step(GPT, intent_only=True)
        scene.task.mark_sent(GPT)

    def post(self, scene: Scene) -> Callable[[], None]:
        """It was answered, and its record is on its way."""
        return scene.task.post_step("call", "1", replayed=0, entry=GPT, usage=Usage(10, 5), reported=False)


class Group:
    """A call and two steps, of which one raises."""

    more, tokens, open = 2, 10, 1

    def begin(self, scene: Scene) -> None:
        """All are under way."""
        scene.task.begin_steps([BegunStep(), BegunStep(), BegunStep(GPT)])

    def post(self, scene: Scene) -> Callable[[], None]:
        """They are over, and another step begins when that is recorded."""
        done = [DoneStep("call", "1", GPT, Usage(10, 5)), DoneStep("step", "2")]
        settle = scene.task.post_steps(done, dropped=1, begins=[BegunStep()], replayed=0)
        assert settle is not None
        return settle


@pytest.fixture(params=[Call, Group])
def posted(request: pytest.FixtureRequest) -> Call | Group:
    found: Call | Group = request.param()
    return found


@pytest.fixture
def scene(driver: Driver) -> Scene:
    return Scene(driver)


def account(scene: Scene) -> tuple[int, int, int]:
    run = scene.driver.runs.get(scene.run)
    return run.paid, run.in_doubt, run.prompt_tokens


def test_it_is_recorded_once_however_often_it_is_waited_for(scene: Scene, posted: Call | Group) -> None:
    posted.begin(scene)
    settle = posted.post(scene)
    settle()
    settle()
    assert account(scene) == (1 + posted.more, 0, posted.tokens)
    assert (scene.task._open[GPT], scene.task._open[STEP]) == (0, posted.open)


def test_whatever_is_written_next_waits_for_it(scene: Scene, posted: Call | Group) -> None:
    posted.begin(scene)
    settle = posted.post(scene)
    scene.task.begin_step()
    assert GPT not in +scene.task._open
    scene.task.record_step("after", "2", replayed=0)
    settle()
    assert account(scene) == (2 + posted.more, 0, posted.tokens)


def test_the_note_reserved_before_it_is_not_withdrawn_until_it_is_acknowledged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer would be taken for the record's, and the note that this reserves be gone: a call in no account."""
    monkeypatch.setattr(claimed_steps, "idle_timer", IdleTimer(lambda *_: True))
    begin, post = Call().begin, Call().post
    for _ in range(3):
        begin(scene)
        post(scene)()  # so another call mostly follows
    begin(scene)
    begin(scene)
    post(scene)()
    assert scene.task._reserved, "beside the call that is still out"
    settle = post(scene)
    monkeypatch.setattr(claimed_steps, "AWAY", -1)
    assert scene.task._withdraw() is False
    settle()
    monkeypatch.undo()
    begin(scene)
    scene.die(seen=False)
    assert scene.in_doubt == 1


@pytest.mark.parametrize("end", ENDS)
def test_so_does_the_end_of_its_task(scene: Scene, posted: Call | Group, end: str) -> None:
    posted.begin(scene)
    posted.post(scene)
    ENDS[end](scene.task)
    paid, _, tokens = account(scene)
    assert (paid, tokens) == (1 + posted.more, posted.tokens)


@pytest.mark.parametrize("lost", ["with its connection", "before it left", "with the server's scripts"])
def test_one_that_was_lost_is_sent_again(
    scene: Scene, redis: Redis, lost: str, posted: Call | Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted.begin(scene)
    if lost == "with the server's scripts":
        redis.script_flush()
    if lost == "before it left":
        monkeypatch.setattr(scene.driver.line, "_send", refuse)
    settle = posted.post(scene)
    monkeypatch.undo()
    if lost == "with its connection":
        scene.driver.line._connection._sock.shutdown(socket.SHUT_RDWR)
    settle()
    assert account(scene) == (1 + posted.more, 0, posted.tokens)


def refuse(*_: object) -> None:
    raise ConnectionError("it is away")


@pytest.mark.parametrize("first", ["its reader", "who writes next"])
def test_where_the_claim_is_lost_both_hear_it(scene: Scene, posted: Call | Group, first: str) -> None:
    posted.begin(scene)
    scene.die()  # so it is believed
    before = account(scene)
    settle = posted.post(scene)
    ways = [settle, lambda: scene.task.commit(dump("done", None), [], replayed=0)]
    for way in ways if first == "its reader" else ways[::-1]:
        with pytest.raises(ClaimLost):
            way()
    assert account(scene) == before


def test_a_call_does_not_begin_on_an_answer_that_was_read_late(scene: Scene, posted: Call | Group) -> None:
    """Its process was frozen since the record left, and another has the task: it would be paid twice."""
    for _ in range(2):  # the server has its script
        posted.begin(scene)
        posted.post(scene)
    scene.driver.workers.reap("w0", process="p0", reason="its lease lapsed", max_attempts=9)
    scene.task._posted.at -= 10_000
    with pytest.raises(ClaimLost):
        scene.task.begin_step(GPT)


def test_its_reader_has_the_last_piece_when_it_is_acknowledged(scene: Scene) -> None:
    heard = list[str]()
    body = _pieces(httpx2)([b"one", b"two"])
    body.acknowledged = lambda: heard.append("acknowledged")
    for piece in body:
        heard.append(piece.decode())
    assert heard == ["one", "acknowledged", "two"]
    body.close()
    assert heard.count("acknowledged") == 1


class Stream:
    """The body of a response, which says what happens to it."""

    def __init__(self, heard: list[str], error: Exception | None = None) -> None:
        self.heard, self.error = heard, error

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        yield b"two"
        self.heard.append("its end was read")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.heard.append("closed")


@pytest.mark.parametrize(("length", "order"), [(6, (1, 0)), (-1, (0, 1))], ids=["told", "not told"])
def test_the_record_leaves_once_the_head_says_that_the_answer_is_whole(length: int, order: tuple[int, int]) -> None:
    heard = list[str]()

    def post(body: bytes) -> Callable[[], None]:
        heard.append(f"{body.decode()} was posted")
        return lambda: heard.append("acknowledged")

    body = read(length, post, Stream(heard))
    first = ["its end was read", "onetwo was posted"]
    assert heard == [*(first[at] for at in order), "closed"]
    assert b"".join(body) == b"onetwo"
    assert heard[3:] == ["acknowledged"]


def test_an_answer_that_is_whole_is_given_whatever_its_connection_meets_after_it() -> None:
    """As one of HTTP/2 whose end is told by itself: asked again, it would be paid twice."""
    heard = list[str]()
    broken = httpx2.RemoteProtocolError("the server closed the connection")
    body = read(6, lambda body: lambda: heard.append("acknowledged"), Stream(heard, broken))
    assert b"".join(body) == b"onetwo"
    assert heard == ["its end was read", "closed", "acknowledged"]
    with pytest.raises(httpx2.RemoteProtocolError):
        read(7, lambda body: bool, Stream(heard, broken))


def test_a_record_that_cannot_leave_is_said_though_the_answer_is_whole() -> None:
    def post(body: bytes) -> Callable[[], None]:
        raise ConnectionError("the store is away")

    with pytest.raises(ConnectionError):
        read(6, post, Stream([]))


def read(length: int, post: Callable[[bytes], Callable[[], object]], stream: Stream) -> Any:
    """The body that a reader has of a response whose head tells this length."""
    call: Any = SimpleNamespace(length=length, post=post)
    journal: Any = None  # which waits in no thread
    exchange = _Exchange(httpx2, None, call)
    exchange._response = SimpleNamespace(stream=stream)
    return exchange.whole(_pieces(httpx2), journal, is_taken=True).stream
