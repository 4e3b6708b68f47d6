"""Calls of models by gRPC, as a program: `python -m tests.integration.llm.rpc_checks CASE ...` tells of each.

A case is one of `rpc_program`, or one of those here, which are of more than one call.
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from runner.core.errors import Interrupted, UsageError
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.modelserver.stubs import using

from ...support.same_turn import strike
from .rpc_program import CLIENTS, STREAM, WHOLE, Account, Given, attempt, done, lines, outcome, served
from .rpc_server import PIECES


def side_by_side(port: int, log: Path) -> dict[str, Any]:
    """Calls of the same moment, of threads through two channels and of coroutines through one."""

    def in_threads() -> list[Any]:
        with (
            grpc.insecure_channel(f"127.0.0.1:{port}") as one,
            grpc.insecure_channel(f"127.0.0.1:{port}") as other,
            ThreadPoolExecutor(8) as pool,
        ):
            methods = [channel.unary_unary(WHOLE) for channel in (one, other)]
            said = [pool.submit(methods[n % 2], b"thread %d" % (n // 2)) for n in range(16)]
            return [found.result() for found in said]

    async def in_coroutines() -> list[Any]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method = channel.unary_unary(WHOLE)
            return await asyncio.gather(*(method(b"coroutine %d" % (n // 2)) for n in range(16)))

    account, found = Account(), []
    for _ in range(2):
        with attempt(account, unattributed=True):
            found.append([*in_threads(), *asyncio.run(in_coroutines())])
    came = Counter(lines(log))
    return {"same": found[0] == found[1], "came": len(came), "most": max(came.values()), "paid": account.paid.total()}


def kept(port: int, log: Path) -> dict[str, Any]:
    """A client that is made once for the process, and used by each task in an event loop of its own."""
    made: list[Any] = []

    async def ask(what: bytes) -> Any:
        if not made:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            made.extend((channel.unary_unary(WHOLE), channel.unary_stream(STREAM)))
        return await made[0](what), [one async for one in made[1](what)]

    account, found = Account(), []
    for number in range(3):
        with attempt(account):
            found.append(str(asyncio.run(ask(b"task %d" % number))))
    return {"found": found, "asked": len(lines(log)), "paid": account.paid.total()}


def forked(port: int, log: Path) -> dict[str, Any]:
    """A process that is forked in a task, before its own channel is made: what it asks is counted, and not recorded."""
    account = Account()
    with attempt(account):
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                channel.unary_unary(WHOLE)(b"child", timeout=30)
            os._exit(0)
        os.waitpid(child, 0)
    return {"asked": len(lines(log)), "paid": account.paid.total(), "past": _past(account, port)}


def _past(account: Account, port: int) -> list[str]:
    return [one.replace(str(port), "PORT") for one in account.past]


def named(port: int, log: Path) -> dict[str, Any]:
    """Methods that a setting names, and one whose requests are a stream."""
    account = Account()
    with attempt(account), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for method in ("ours.Models/Ask", "theirs.Models/Ask", "theirs.Models/Embed"):
            channel.unary_unary(f"/{method}")(b"it")
        with contextlib.suppress(grpc.RpcError):
            channel.stream_unary("/ours.Models/Tell")(iter([b"it"]), timeout=30)
    models = [json.loads(one)["model"].replace(str(port), "PORT") for one in account.recorded.values()]
    return {"models": models, "paid": account.paid.total(), "past": _past(account, port)}


def redirected(port: int, log: Path) -> dict[str, Any]:
    """In a run whose models a stand-in answers: which is asked by HTTP alone."""
    account = Account()
    with attempt(account), using("demo"):
        said = [outcome(client, Given(port, log)).replace(str(port), "PORT") for client in CLIENTS]
        with contextlib.suppress(UsageError), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            channel.stream_unary(WHOLE)(iter([b"it"]), timeout=30)
    return {"said": sorted(set(said)), "by": len(said), "asked": len(lines(log)), "in doubt": account.open.total()}


def drained(port: int, log: Path) -> dict[str, Any]:
    """By each client, a task that is told to stop while its model answers, by a stop that can wait; then it goes on."""
    found = {}
    for client in CLIENTS:
        account, given, before = Account(), Given(port, log, asked=b"it waits"), len(lines(log))
        (go := log.with_suffix(".go")).unlink(missing_ok=True)
        make = partial(outcome, client, given)
        with attempt(account) as journal:
            stop = partial(_stop_while_asked, journal, partial(given.come, before), go)
            said = [_beside(stop, make), make()]  # the second is not made
        with attempt(account):
            again = make()
        counts = [len(lines(log)) - before, account.paid.total(), account.open.total()]
        found[client] = [*said, again == make(), *counts]
    return found


def struck(port: int, log: Path) -> dict[str, Any]:
    """Awaited, a task that is stopped in the turn of its loop in which its answer comes, or the end of its stream."""

    async def whole(channel: Any, pieces: list[bytes]) -> None:
        pieces.append(await channel.unary_unary(WHOLE)(b"struck"))

    async def streamed(channel: Any, pieces: list[bytes]) -> None:
        async for one in channel.unary_stream(STREAM)(b"struck"):
            pieces.append(one)

    async def stopped(ask: Any, before: int, scope: CancelScope) -> str:
        pieces: list[bytes] = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            task = asyncio.create_task(ask(channel, pieces))
            return await strike(task, scope, lambda: len(pieces) == before)

    found = {}
    for ask, before in ((whole, 0), (streamed, PIECES)):
        account, asked = Account(), len(lines(log))
        with attempt(account) as journal:
            ended = asyncio.run(stopped(ask, before, journal.cancel_scope))
        with attempt(account), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            said = [*channel.unary_stream(STREAM)(b"struck")] if before else [channel.unary_unary(WHOLE)(b"struck")]
        found[ask.__name__] = [ended, len(said), len(lines(log)) - asked, account.paid.total(), account.open.total()]
    return found


def _stop_while_asked(journal: Journal, come: Callable[[], None], go: Path) -> None:
    come()
    assert journal.cancel_scope.in_call
    journal.cancel_scope.ask(Interrupted("the worker is draining"))
    go.touch()  # which its model waits for


def _beside(other: Callable[[], object], one: Callable[[], Any]) -> Any:
    """What ``one`` gives, while a thread does the other."""
    thread = threading.Thread(target=other)
    thread.start()
    try:
        return one()
    finally:
        thread.join()


CHECKS: dict[str, Callable[[int, Path], dict[str, Any]]] = {
    one.__name__: one for one in (forked, side_by_side, kept, named, redirected, drained, struck)
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with served(log) as port:
            for case in sys.argv[1:]:
                client, _, setting = case.partition(",")
                log.unlink(missing_ok=True)
                found = done(client, setting, log, port) if setting else CHECKS[case](port, log)
                print(json.dumps([case, found]), flush=True)


if __name__ == "__main__":
    main()
