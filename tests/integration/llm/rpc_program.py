"""Calls of a model by gRPC: clients, what they are set or meet, and what comes of each; `rpc_checks` is the program.

A case is a client, of `CLIENTS`, and a setting, of `SETTINGS`, with a comma between. Each is made alone, in a task, and
in that task's next attempt. `test_grpc` has what is expected.
"""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.experimental

from runner.core.errors import Interrupted
from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne
from runner.llm.recording import journaled
from runner.testing import eventually


def lines(log: Path) -> list[bytes]:
    """The requests that came."""
    return log.read_bytes().splitlines() if log.exists() else []


SERVICE = "/google.ai.generativelanguage.v1beta.GenerativeService"
WHOLE, STREAM = f"{SERVICE}/GenerateContent", f"{SERVICE}/StreamGenerateContent"
SECRET = "sk-secret"


def _same(message: bytes) -> bytes:
    return message


def _refuses(message: bytes) -> bytes:
    raise ValueError("it is of another version")


@dataclass(frozen=True)
class Given:
    """What a call is made with."""

    port: int
    log: Path
    asked: bytes = b"what"
    method: str = ""
    then: bytes = b""  #: asked afterwards, whatever comes of it
    half: bool = False  #: of the answer is read
    cancel: bool = False  #: as soon as its service has it
    given_up: bool = False  #: it was cancelled by an attempt before, so its service does not get it
    closed: bool = False  #: its channel, before
    retries: bool = False  #: by an interceptor
    deserializer: Any = _same
    channel: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        return f"dns:///127.0.0.1:{self.port}"

    def come(self, before: int) -> None:
        """Return when its service has it."""
        eventually(lambda: len(lines(self.log)) > before, within=30, why="the model is asked")

    @property
    def how(self) -> dict[str, Any]:
        return {"timeout": 15.0, "metadata": (("x-api-key", SECRET),), **self.options}


class Retries(grpc.UnaryUnaryClientInterceptor):
    """Makes a call again that was refused."""

    def intercept_unary_unary(self, make: Any, details: Any, request: Any) -> Any:
        first = make(details, request)
        return make(details, request) if first.code() is grpc.StatusCode.UNAVAILABLE else first


class RetriesAwaited(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, make: Any, details: Any, request: Any) -> Any:
        first = await make(details, request)
        return await make(details, request) if await first.code() is grpc.StatusCode.UNAVAILABLE else first


@contextlib.contextmanager
def _open(given: Given, *more: Any) -> Iterator[Any]:
    made = grpc.insecure_channel(given.target, options=[*given.channel, *more])
    with made:
        if given.closed:
            made.close()
        yield grpc.intercept_channel(made, Retries()) if given.retries else made


def _unary(channel: Any, given: Given) -> Any:
    return channel.unary_unary(given.method or WHOLE, _same, given.deserializer)


def _streamed(channel: Any, given: Given) -> Any:
    return channel.unary_stream(given.method or STREAM, _same, given.deserializer)


def sync(given: Given) -> Any:
    with _open(given) as channel:
        return _unary(channel, given)(given.asked, **given.how)


def with_call(given: Given) -> Any:
    with _open(given) as channel:
        said, call = _unary(channel, given).with_call(given.asked, **given.how)
        assert (isinstance(call, grpc.Call), call.is_active(), call.details()) == (True, False, "")
        return said, call.code().name, call.add_callback(print)


def future(given: Given) -> Any:
    with _open(given) as channel:
        before = len(lines(given.log))
        made = _unary(channel, given).future(given.asked, **given.how)
        assert isinstance(made, grpc.Future)
        if given.cancel:
            given.come(before)
            made.cancel()
        told: list[Any] = []
        over = threading.Event()
        made.add_done_callback(lambda one: (told.append(one.code().name), over.set()))
        assert over.wait(30)
        return made.result(), made.exception(), made.done(), told


def streamed(given: Given, *more: Any) -> Any:
    with _open(given, *more) as channel:
        before = len(lines(given.log))
        made = _streamed(channel, given)(given.asked, **given.how)
        assert isinstance(made, grpc.Call)
        if given.cancel:
            given.come(before)
            made.cancel()
        found = [next(made)] if given.half else list(made)
        return found if given.half else (found, made.code().name, made.details(), made.is_active())


def streamed_on_one_thread(given: Given) -> Any:
    return streamed(given, (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1))


@contextlib.asynccontextmanager
async def _open_awaited(given: Given) -> Any:
    between = [RetriesAwaited()] if given.retries else []
    async with grpc.aio.insecure_channel(given.target, options=[*given.channel], interceptors=between) as channel:
        if given.closed:
            await channel.close()
        yield channel


def awaited(given: Given) -> Any:
    async def do() -> Any:
        async with _open_awaited(given) as channel:
            before = len(lines(given.log))
            call = _unary(channel, given)(given.asked, **given.how)
            told: list[Any] = []
            call.add_done_callback(lambda one: told.append(one.done()))
            if given.cancel:
                await asyncio.to_thread(bool if given.given_up else given.come, before)
                call.cancel()
            said, code = await call, (await call.code()).name
            await asyncio.sleep(0)
            return said, code, await call.details(), call.done(), call.cancelled(), told

    return asyncio.run(do())


def awaited_streamed(given: Given) -> Any:
    async def do() -> Any:
        async with _open_awaited(given) as channel:
            before = len(lines(given.log))
            call = _streamed(channel, given)(given.asked, **given.how)
            if given.cancel:
                await asyncio.to_thread(given.come, before)
                call.cancel()
            if given.half:
                return [await anext(aiter(call))]
            found = [one async for one in call]
            return found, (await call.code()).name, call.done(), call.cancelled()

    return asyncio.run(do())


def awaited_read(given: Given) -> Any:
    async def do() -> Any:
        async with _open_awaited(given) as channel:
            before = len(lines(given.log))
            call = _streamed(channel, given)(given.asked, **given.how)
            if given.cancel:
                await asyncio.to_thread(given.come, before)
                call.cancel()
            else:
                await call.initial_metadata()
            found = [await call.read()]
            while not given.half and (one := await call.read()) is not grpc.aio.EOF:
                found.append(one)
            return found

    return asyncio.run(do())


CLIENTS: dict[str, Callable[[Given], Any]] = {
    one.__name__: one
    for one in (
        *(sync, with_call, future, streamed, streamed_on_one_thread),
        *(awaited, awaited_streamed, awaited_read),
    )
}
BIG = b"\x12\xc0\x96\xb1\x02" + b"x" * 5_000_000  # a field of that length
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def told(**changes: Any) -> Callable[[Given], Given]:
    return lambda given: replace(given, **changes)


SETTINGS: dict[str, Callable[[Given], Given]] = {
    "nothing": told(),
    "wait for ready": told(options={"wait_for_ready": True}),
    "gzip": told(options={"compression": grpc.Compression.Gzip}),
    "5 MB": told(asked=BIG, channel=UNLIMITED, options={"timeout": 60.0}),
    "an empty answer": told(asked=b"nothing"),
    "another method": told(method="/shop.Orders/List"),
    "refused": told(asked=b"invalid"),
    "busy": told(asked=b"busy"),
    "refused, and then another": told(asked=b"invalid", then=b"what"),
    "busy, and then another": told(asked=b"busy", then=b"what"),
    "busy once, and repeated": told(asked=b"once", retries=True),
    "nobody there": told(port=9),
    "its channel is closed": told(closed=True),
    "more than may be sent": told(asked=b"x" * 500, channel=(("grpc.max_send_message_length", 100),)),
    "not answered in time": told(asked=b"slow", options={"timeout": 1.0}),
    "not answered in time, given up": told(asked=b"slow", options={"timeout": 1.0}),
    "lost": told(asked=b"lost"),
    "cancelled": told(asked=b"slow", cancel=True),
    "cancelled, given up": told(asked=b"slow", cancel=True),
    "half read": told(half=True),
    "breaks off": told(asked=b"breaks"),
    "stops midway": told(asked=b"stops"),
    "stalls, until its deadline": told(asked=b"stalls", options={"timeout": 2.0}),
    "an answer of another version": told(deserializer=_refuses),
    "an answer of another version, awaited": told(deserializer=_refuses),
}


class Account(OneByOne):
    """Keeps steps as a store would, and their account."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.open, self.paid = Counters(), Counters()
        self.past: list[str] = []  #: where calls went that nothing records

    def begin_step(self, entry: AccountKey = STEP, *, supersedes: Any = (), intent_only: bool = False) -> None:
        self.open.subtract(supersedes)
        self.open[entry] += 1

    def mark_sent(self, entry: Any) -> None: ...

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False) -> None:
        self.open[entry] -= 1

    def record_step(
        self, step: str, value: str, *, replayed: Any, entry: Any = STEP, usage: Any = NO_TOKENS, reported: bool = False
    ) -> None:
        self.recorded[step] = value
        if entry is not None:
            self.open[entry] -= 1
            self.paid[entry] += 1


@contextlib.contextmanager
def attempt(account: Account, **options: Any) -> Iterator[Journal]:
    """In here is a task, with what was recorded so far."""
    journal = Journal(account.recorded, account, CancelScope())
    journal.on_unrecorded = account.past.append
    with journaled(journal, **options):
        yield journal


@contextlib.contextmanager
def served(log: Path) -> Iterator[int]:
    program = [sys.executable, str(Path(__file__).with_name("rpc_server.py")), str(log)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def outcome(client: str, given: Given) -> str:
    """What a client gives, or how it fails."""
    try:
        found = CLIENTS[client](given)
    except (Exception, asyncio.CancelledError, Interrupted) as error:
        code = getattr(error, "code", None)
        found = f"{type(error).__name__.strip('_')} {code().name if code else ''}".strip()
    then = outcome(client, replace(given, asked=given.then, then=b"")) if given.then else ""
    return str(found)[:300] + then


def done(client: str, setting: str, log: Path, port: int) -> dict[str, Any]:
    """One case, with a server for itself if it ends that."""
    account = Account()
    found: dict[str, Any] = {}
    for time in ("alone", "first", "again"):
        with contextlib.ExitStack() as stack:
            at = stack.enter_context(served(log)) if setting in ("lost", "stops midway") else port
            if time != "alone":
                journal = stack.enter_context(attempt(account))
            given = SETTINGS[setting](Given(port=at, log=log, given_up=time == "again"))
            before = len(lines(log))
            account.open.clear()
            found[time] = outcome(client, given)
            found[f"asked {time}"] = len(lines(log)) - before
        if time != "alone":
            gc.collect()  # a stream that nobody reads any more
            assert not journal.cancel_scope.in_call, "the task is in no call"
        if time == "first":
            found["paid"], found["in doubt"] = account.paid.total(), account.open.total()
    found["kept"] = "".join(account.recorded.values())[:400]
    assert SECRET not in found["kept"]
    return found
