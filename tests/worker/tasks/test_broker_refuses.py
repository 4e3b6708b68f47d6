"""A broker that refuses for a moment, at any command of Celery's consumer: it waits, and never ends."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import kombu.transport
import pytest
from kombu import Connection, Exchange, Queue
from kombu.asynchronous import Hub, get_event_loop, set_event_loop
from kombu.asynchronous.timer import Timer
from redis import Redis

from runner.providers.redis.outages import TRANSIENT_ERRORS
from runner.tasks import transport
from runner.tasks.app import kombu_url
from runner.testing import Command, FaultProxy, RedisServer, Refuse
from runner.testing.fault_proxy import ANSWERED

PAUSE = 0.02  # seconds that it refuses


@pytest.fixture(autouse=True)
def as_in_a_worker(monkeypatch) -> None:
    for scheme, kind in transport.TRANSPORT_ALIASES.items():
        monkeypatch.setitem(transport.TRANSPORT_ALIASES, scheme, kind)  # as it is, to be put back
    monkeypatch.setattr(kombu.transport, "_transport_cache", {})  # another test may have had kombu look
    transport.install()


@pytest.fixture
def proxy(own_server) -> Iterator[FaultProxy]:
    with FaultProxy(own_server) as one:
        yield one


class From:
    """From its ``nth`` command on, of those that it refuses at all, a server refuses for a moment."""

    def __init__(self, nth: int, code: str) -> None:
        self.left, self.code = nth, code

    def __call__(self, command: Command) -> Refuse | None:
        if command.name in ANSWERED[self.code]:
            return None
        self.left -= 1
        return Refuse(self.code, PAUSE) if self.left == 0 else None


def patiently(call: Callable[[], Any]) -> Any:
    """What Celery's consumer does about the errors of a connection that pass: it asks again. Others go through."""
    until = time.monotonic() + 30
    while True:
        try:
            return call()
        except TRANSIENT_ERRORS:  # (redis-py's TimeoutError, not Python's)
            assert time.monotonic() < until
            time.sleep(PAUSE)


def consume(url: str) -> list[str]:
    """Take one message from a queue, by a consumer that hears broadcasts too, as a worker's does."""
    found: list[str] = []
    everybody = Queue("everybody", Exchange("everybody", type="fanout"), auto_delete=True)

    def begin() -> Connection:
        connection = Connection(kombu_url(url), transport_options={"priority_steps": [0], "client_name": "consumer"})
        try:
            connection.ensure_connection(interval_start=PAUSE, interval_step=0, interval_max=PAUSE)
            consumer = connection.Consumer(
                [Queue("jobs", no_ack=True), everybody], callbacks=[lambda body, message: found.append(body)]
            )
            consumer.consume()
        except BaseException:
            connection.release()
            raise
        return connection

    with patiently(begin) as connection:
        until = time.monotonic() + 30
        while not found:
            assert time.monotonic() < until
            with contextlib.suppress(TimeoutError):  # a worker's event loop is woken by a timer
                patiently(partial(connection.drain_events, timeout=0.1))
    return found


@pytest.mark.parametrize("code", ["BUSY", "LOADING", "READONLY"])
def test_it_is_waited_for_wherever_it_refuses(code, own_server, proxy):
    reached, nth = True, 0
    while reached:
        nth += 1
        with Connection(kombu_url(own_server.url)) as direct, direct.SimpleQueue("jobs", no_ack=True) as queue:
            queue.put("a job")
        proxy.decide = refusing = From(nth, code)
        assert consume(proxy.url) == ["a job"]
        reached = refusing.left <= 0
        assert nth < 60
    assert nth > 3  # else nothing was refused


NONE = [b"not JSON", b"\xff", b"[1]", b"{}", b'{"properties": 1}', b'{"properties": {}}', b"null", b'"text"',
        b'{"properties": {"delivery_tag": 1, "body_encoding": "base64"}, "body": "abc"}']  # fmt: skip


def test_what_is_no_message_is_dropped_with_a_line_of_the_log(
    server: RedisServer, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with Connection(kombu_url(server.url)) as direct, direct.SimpleQueue("jobs", no_ack=True) as queue:
        queue.put("a job")
    redis.rpush("jobs", *NONE)  # before it
    assert consume(server.url) == ["a job"]
    assert caplog.text.count("a message could not be read; dropping it") == len(NONE)


def test_it_is_asked_again_in_time_where_the_event_loop_was_reset(server: RedisServer) -> None:
    loop = set_event_loop(Hub(timer=Timer()))
    with Connection(kombu_url(server.url)) as connection:
        # Given a consumer that began anew: Celery resets its loop for that, and kombu has none from then on
        connection.transport.register_with_event_loop(connection.connection, loop)
        loop.reset()
        assert get_event_loop() is None
        connection.transport.register_with_event_loop(connection.connection, loop)
        known = list(loop.timer.queue)
        # When the broker refuses, then a timer wakes the loop as soon as it is to be asked again
        connection.transport.cycle._pause((connection.default_channel, "BRPOP"), ConnectionError("away"))
        (entry,) = [one for one in loop.timer.queue if one not in known]
        assert entry.eta - time.monotonic() <= transport.PAUSE
    loop.close()
