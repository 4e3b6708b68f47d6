"""A client for the command line and `Client`: it retries for half a minute while the server is unavailable.

Or for as long as who waits for a run does (`wait_while_unavailable`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from redis.client import Pipeline
from redis.exceptions import BusyLoadingError, ConnectionError

from runner.core.backoff import Backoff
from runner.core.errors import BadInput, Exit, RunnerError, StoreUnreachable
from runner.providers.redis.connection import Client, NoticingClient, NoticingPipeline, connect, leave, repeating
from runner.providers.redis.outages import (
    REFUSES,
    TRANSIENT_ERRORS,
    NotNow,
    brief,
    format_store_error,
    outage,
    remedy,
    retry_while_unavailable,
)

T = TypeVar("T")

PATIENCE = 30.0  #: for so many seconds a person waits for a server that refuses for now, or was there and is not
_asks_once = ContextVar("asks_once", default=False)  #: whether the caller waits itself (`wait_while_unavailable`)
_SCRIPTS = ("EVALSHA", "EVAL")  #: commands by which a client writes: not each of them may be repeated


class StoreLost(StoreUnreachable, ConnectionError):
    """A server that had answered does not any more. What was asked last may have been done."""


class StillAway(RunnerError):
    """The store was away, or refused, until nothing more was waited for."""

    exit_code = Exit.UNREACHABLE


class StoreRefuses(StoreUnreachable, NotNow):
    """A server refused for longer than a person waits. Nothing was done."""

    def __init__(self, refusal: NotNow) -> None:
        NotNow.__init__(self, *refusal.said.split(" ", 1))
        self.args = (_unavailable(refusal),)


class WaitingPipeline(NoticingPipeline):
    """Commands in one round trip, repeated as a `WaitingClient` repeats one."""

    owner: "WaitingClient"

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Do them all. Returns their answers."""
        repeatable = not any(command[0] in _SCRIPTS for command, _ in self.command_stack)
        return self.owner.ask(repeating(self, partial(super().execute, raise_on_error)), repeatable=repeatable)


class WaitingClient(NoticingClient):
    """For people. A server that refuses for now is waited for, `PATIENCE` seconds.

    So is one that is away, if it has answered before: it restarts, or another takes over. A script that it may have run
    is not repeated. One that never answered is told at once.
    """

    pipelines = WaitingPipeline
    reached = False
    tend: Callable[[], object] = staticmethod(bool)
    """Called when it is away: who keeps the server sees to it."""

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command and return its answer. Raises `StoreLost` where it was not waited for, or in vain."""
        if command[0] in _SCRIPTS:
            return self.ask(partial(self.mending, partial(self._run_script, command)), repeatable=False)
        return self.ask(partial(super().execute_command, *command, **options), repeatable=True)

    def ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The same of commands that go in one round trip, none of them a script."""
        return self.ask(partial(super().ask_all, commands), repeatable=True)

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """Commands in one round trip."""
        made = super().pipeline(transaction, shard_hint)
        made.owner = self  # type: ignore[attr-defined]  # it is a `WaitingPipeline`
        return made

    def ask(self, call: Callable[[], T], *, repeatable: bool) -> T:
        """Return what ``call`` returns, which asks the server once."""
        try:
            with _texts():
                answer = self._wait(call, TRANSIENT_ERRORS if self.reached and repeatable else REFUSES)
        except TRANSIENT_ERRORS as error:
            if not self.reached:
                raise
            if isinstance(error, NotNow):
                raise StoreRefuses(error) from error
            is_loading = isinstance(error, BusyLoadingError)
            raise StoreLost(_unavailable(error) if is_loading else _lost(error)) from error
        self.reached = True
        return answer

    def _run_script(self, command: tuple[Any, ...]) -> Any:
        """Run a script on a connection that is open: while there is none nothing was sent, and it is waited for."""
        pool = self.connection_pool
        connection: Any = self._wait(pool.get_connection, TRANSIENT_ERRORS if self.reached else ())
        try:
            connection.send_command(*command)
            return self.parse_response(connection, command[0])
        finally:
            pool.release(connection)

    def _wait(self, call: Callable[[], T], passing: tuple[type[Exception], ...]) -> T:
        def once() -> T:
            try:
                return call()
            except TRANSIENT_ERRORS as error:
                if isinstance(error, NotNow):
                    leave(self.connection_pool, error)
                elif passing is TRANSIENT_ERRORS:
                    self.tend()
                raise

        return retry_while_unavailable(once, limit=0.0 if _asks_once.get() else PATIENCE, passing=passing)


def waiting(url: str) -> Client:
    """A client for people, which waits, and not for long: see `WaitingClient`. Raises as `connect`."""
    return connect(url, kind=WaitingClient)


def repeated(call: Callable[[], T]) -> T:
    """What ``call`` gives, once more where the connection was lost meanwhile: it is one that may be repeated."""
    try:
        return call()
    except StoreLost:
        return call()


def wait_while_unavailable(
    call: Callable[[], T], keep_waiting: Callable[[], bool], passing: tuple[type[Exception], ...] = TRANSIENT_ERRORS
) -> T:
    """Return what ``call`` returns, which may be repeated, however long the store cannot be reached.

    The clients here ask once each time: one line says that the store is waited for, and one that it is back. Raises
    `StillAway` once ``keep_waiting`` does not return true. ``passing`` are the errors after which it is called again.
    """
    who, backoff, reached = object(), Backoff(0.1, 1.0), False
    token = _asks_once.set(True)
    try:
        while True:
            try:
                answer = call()
                reached = True
                return answer
            except passing as error:
                if not keep_waiting():
                    raise StillAway(str(error)) from error
                cause = error.__cause__
                outage.begins(who, cause if isinstance(cause, TRANSIENT_ERRORS) else error)
                time.sleep(backoff.pause())
    finally:
        _asks_once.reset(token)
        outage.ends(who, reached=reached)


@contextmanager
def _texts() -> Iterator[None]:
    """Raises `BadInput` where what is asked for cannot be written down: nothing was sent."""
    try:
        yield
    except UnicodeEncodeError as error:
        near = error.object[max(error.start - 20, 0) : error.end + 20]
        raise BadInput(f"{near!r} contains half of a surrogate pair, which is not valid UTF-8") from None


def _unavailable(error: Exception) -> str:
    return f"Redis is unavailable: {format_store_error(error)}. {remedy(error)}"


def _lost(error: Exception) -> str:
    return f"the connection to Redis was lost: {brief(error)}; `runner doctor` shows its state"
