"""The record of a call whose acknowledgement is waited for later: its answer is read meanwhile."""

import socket
from collections.abc import Callable

import httpx2
import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from runner.core.errors import ClaimLost
from runner.core.ledger import AccountKey, Usage
from runner.core.output import dump
from runner.llm.recording.httpx_transport import _pieces
from runner.providers.redis import step_intents

from .driver import Driver
from .test_reserved import ENDS, Scene

GPT = AccountKey("model", "A", "gpt")


def begin(scene: Scene) -> None:
    """A call leaves."""
    scene.task.begin_step(GPT, intent_only=True)
    scene.task.mark_sent(GPT)


def post(scene: Scene) -> Callable[[], None]:
    """It was answered, and its record is on its way."""
    return scene.task.post_step("call", "1", replayed=0, entry=GPT, usage=Usage(10, 5), reported=False)


@pytest.fixture
def scene(driver: Driver) -> Scene:
    return Scene(driver)


def account(scene: Scene) -> tuple[int, int, int]:
    run = scene.driver.runs.get(scene.run)
    return run.paid, run.in_doubt, run.prompt_tokens


def test_it_is_recorded_once_however_often_it_is_waited_for(scene: Scene) -> None:
    begin(scene)
    settle = post(scene)
    settle()
    settle()
    assert account(scene) == (2, 0, 10)
    assert GPT not in +scene.task._open


def test_whatever_is_written_next_waits_for_it(scene: Scene) -> None:
    begin(scene)
    settle = post(scene)
    scene.task.begin_step()
    assert GPT not in +scene.task._open
    scene.task.record_step("after", "2", replayed=0)
    settle()
    assert account(scene) == (3, 0, 10)


def test_the_note_reserved_before_it_is_not_withdrawn_until_it_is_acknowledged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer would be taken for the record's, and the note that this reserves be gone: a call in no account."""
    monkeypatch.setattr(step_intents, "quiet_watch", lambda *_: None)
    for _ in range(3):
        begin(scene)
        post(scene)()  # so another call mostly follows
    begin(scene)
    begin(scene)
    post(scene)()
    assert scene.task._reserved, "beside the call that is still out"
    settle = post(scene)
    monkeypatch.setattr(step_intents, "AWAY", -1)
    assert scene.task._withdraw() is False
    settle()
    monkeypatch.undo()
    begin(scene)
    scene.die(seen=False)
    assert scene.in_doubt == 1


@pytest.mark.parametrize("end", ENDS)
def test_so_does_the_end_of_its_task(scene: Scene, end: str) -> None:
    begin(scene)
    post(scene)
    ENDS[end](scene.task)
    assert account(scene) == (2, 0, 10)


@pytest.mark.parametrize("lost", ["with its connection", "before it left", "with the server's scripts"])
def test_one_that_was_lost_is_sent_again(
    scene: Scene, redis: Redis, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(scene)
    if lost == "with the server's scripts":
        redis.script_flush()
    if lost == "before it left":
        monkeypatch.setattr(scene.driver.line, "_send", refuse)
    settle = post(scene)
    monkeypatch.undo()
    if lost == "with its connection":
        scene.driver.line._connection._sock.shutdown(socket.SHUT_RDWR)
    settle()
    assert account(scene) == (2, 0, 10)


def refuse(*_: object) -> None:
    raise ConnectionError("it is away")


@pytest.mark.parametrize("first", ["its reader", "who writes next"])
def test_where_the_claim_is_lost_both_hear_it(scene: Scene, first: str) -> None:
    begin(scene)
    scene.die()  # so it is believed
    before = account(scene)
    settle = post(scene)
    ways = [settle, lambda: scene.task.commit(dump("done", None), [], replayed=0)]
    for way in ways if first == "its reader" else ways[::-1]:
        with pytest.raises(ClaimLost):
            way()
    assert account(scene) == before


def test_its_reader_has_the_last_piece_when_it_is_acknowledged(scene: Scene) -> None:
    heard = list[str]()
    body = _pieces(httpx2)([b"one", b"two"])
    body.acknowledged = lambda: heard.append("acknowledged")
    for piece in body:
        heard.append(piece.decode())
    assert heard == ["one", "acknowledged", "two"]
    body.close()
    assert heard.count("acknowledged") == 1
