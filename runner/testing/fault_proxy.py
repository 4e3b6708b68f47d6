"""A proxy between a fleet and its Redis that refuses, cuts, delays or loses any command, as networks and servers do.

It understands the protocol, so it knows each command by name (a script by its file's name), by the connection it
came on, and by how often it came before. What happens to it is decided by a function::

    with RedisServer() as redis, FaultProxy(redis) as proxy, Fleet(proxy.url) as fleet:
        proxy.decide = lambda command: Cut(applied=True) if command.name == "commit" else None
"""

import asyncio
import contextlib
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from runner.providers.redis import scripts
from runner.testing.fleet import RedisServer
from runner.testing.resp import read_command, read_reply

REFUSALS = {
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "READONLY": "READONLY You can't write against a read only replica.",
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "NOPERM": "NOPERM User runner has no permissions to run the 'evalsha' command",
    "NOAUTH": "NOAUTH Authentication required.",
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
}
"""What a server says that cannot serve a command now, by the code that clients tell it by."""

_ALWAYS = frozenset({"HELLO", "AUTH", "MULTI", "DISCARD", "WATCH", "UNWATCH", "QUIT", "RESET"})
_ABOUT_THE_SERVER = _ALWAYS | {"CLIENT", "SELECT", "SUBSCRIBE", "PSUBSCRIBE", "PUBLISH", "INFO", "ECHO", "TIME", "ROLE"}

ANSWERED = {
    "BUSY": _ALWAYS,  # so no connection gets its name or database. Valkey gives it both, and no more
    "LOADING": _ABOUT_THE_SERVER,
    "MASTERDOWN": _ABOUT_THE_SERVER,
    "MISCONF": _ABOUT_THE_SERVER,
    "NOPERM": _ALWAYS,
    "NOAUTH": _ALWAYS,
    **dict.fromkeys(("OOM", "NOREPLICAS", "READONLY", "CLUSTERDOWN", "TRYAGAIN"), _ABOUT_THE_SERVER | {"PING"}),
}
"""What a server answers all the same while it refuses, as Redis 7.0 and Valkey 9.1 do. Those that refuse writes alone
answer reads as well; here they do not, for a script may be either."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the name of its connection, its words, and how many such commands came before."""

    connection: str
    name: str
    before: int
    words: tuple[bytes, ...]

    def mentions(self, text: str) -> bool:
        """Whether one of the words contains this text."""
        wanted = text.encode()
        return any(wanted in word for word in self.words)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server refuses this command, and for ``seconds`` all others, with one of the `REFUSALS`."""

    code: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks: before the server has the command, or once it is ``applied`` but not answered."""

    applied: bool


@dataclass(frozen=True, slots=True)
class Delay:
    """The command, and all after it on the same connection, reach the server ``seconds`` later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lose:
    """Nothing more passes on this connection in either direction, without an error, as when a network is gone."""

    applied: bool


Fault: TypeAlias = Refuse | Cut | Delay | Lose


@dataclass(slots=True)
class _Awaited:
    """A reply that the client expects: our own, our own in place of the server's, or the server's."""

    canned: bytes | None = None
    instead: bytes | None = None
    end: Cut | Lose | None = None


class FaultProxy:
    """Listens on a socket of its own in front of ``server``. In a ``with`` it is started, and ended with it.

    ``decide`` is asked for each command, on the proxy's thread, and gives what happens to it; `None` lets it pass.
    ``blows`` counts what was done, by kind. A restarted server is found by the next connection.
    """

    def __init__(self, server: RedisServer, decide: Callable[[Command], Fault | None] | None = None) -> None:
        self._server = server
        self._folder = tempfile.TemporaryDirectory(prefix="rx-", ignore_cleanup_errors=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._refusing: tuple[str, float] = ("", 0.0)
        self._names = {script.sha.encode(): name for name in scripts.names() for script in [scripts.load(name)]}
        self._connections: set[asyncio.Task[None]] = set()
        self.decide: Callable[[Command], Fault | None] = decide or (lambda _: None)
        self.blows: Counter[str] = Counter()

    @property
    def socket(self) -> Path:
        """The path of the socket on which the proxy listens."""
        return Path(self._folder.name) / "p.sock"

    @property
    def url(self) -> str:
        """Return the URL that a fleet uses for its Redis."""
        return f"unix://{self.socket}"

    def move_to(self, server: RedisServer) -> None:
        """Connect to another server from now on, as an address does after a failover. Open connections are cut."""
        self._server = server
        self._run(self._cut_all())

    def refuse(self, code: str, seconds: float) -> None:
        """Refuse everything for this time, as a full, demoted or loading server does."""
        self._refusing = (code, time.monotonic() + seconds)
        self.blows[f"refuse {code}"] += 1

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_unix_server(self._serve, str(self.socket), limit=2**20)

    async def _end(self) -> None:
        self._listener.close()
        await self._cut_all()

    async def _cut_all(self) -> None:
        cut = list(self._connections)
        for connection in cut:
            connection.cancel()
        await asyncio.gather(*cut, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
                up_reader, up_writer = await asyncio.open_unix_connection(str(self._server.socket), limit=2**20)
                try:
                    await _Connection(self, (reader, writer), (up_reader, up_writer)).serve()
                finally:
                    up_writer.close()
        finally:
            writer.close()
            self._connections.discard(task)

    def fault_for(self, connection: str, words: list[bytes]) -> Fault | None:
        """Return the fault for a command, if any. Called on the proxy's thread."""
        name = self._name(words)
        key = (connection, name)
        command = Command(connection, name, self._counts[key], tuple(words))
        self._counts[key] += 1
        code, until = self._refusing
        if time.monotonic() < until and name not in ANSWERED[code]:
            return Refuse(code)
        fault = self.decide(command)
        match fault:
            case Refuse(code, seconds):
                self.blows[f"refuse {code}"] += 1
                self._refusing = (code, time.monotonic() + seconds)
            case Cut(applied) | Lose(applied):
                self.blows[f"{type(fault).__name__.lower()} {'after' if applied else 'before'}"] += 1
            case Delay():
                self.blows["delay"] += 1
        return fault

    def _name(self, words: list[bytes]) -> str:
        verb = words[0].upper().decode("ascii", "replace") if words else ""
        if verb == "EVALSHA" and len(words) > 1:
            return self._names.get(words[1], verb)
        if verb == "EVAL" and len(words) > 1:
            return next((n for n in self._names.values() if scripts.load(n).text == words[1]), verb)
        return verb


class _Connection:
    """One client's connection and ours to the server."""

    def __init__(
        self,
        proxy: FaultProxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._owed: deque[_Awaited] = deque()
        self._name = ""
        self._subscribed = self._in_transaction = self._aborted = self._mute = False

    async def serve(self) -> None:
        """Forward commands and replies until either side closes or a fault ends the connection."""
        both = [asyncio.ensure_future(self._commands()), asyncio.ensure_future(self._replies())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _commands(self) -> None:
        while True:
            raw, words = await read_command(self._from_client)
            if self._mute:
                continue
            fault = None if self._subscribed else self._proxy.fault_for(self._name, words)
            self._note(words)
            refusal = REFUSALS[fault.code] if isinstance(fault, Refuse) else ""
            if words[0].upper() == b"EXEC" and (self._aborted or refusal):
                why = " previous errors." if self._aborted else f": {refusal}"
                self._aborted = False
                self._owed.append(_Awaited(instead=f"-EXECABORT Transaction discarded because of{why}\r\n".encode()))
                self._to_server.write(b"DISCARD\r\n")
                continue
            match fault:
                case Cut(applied=False):
                    return
                case Lose(applied=False):
                    self._mute = True
                    continue
                case Refuse(code):
                    self._aborted = self._in_transaction
                    self._owed.append(_Awaited(canned=f"-{REFUSALS[code]}\r\n".encode()))
                    self._flush()
                    continue
                case Delay(seconds):
                    await asyncio.sleep(seconds)
            self._owed.append(_Awaited(end=fault if isinstance(fault, Cut | Lose) else None))
            self._to_server.write(raw)
            await self._to_server.drain()

    def _note(self, words: list[bytes]) -> None:
        verb = words[0].upper() if words else b""
        if verb == b"CLIENT" and len(words) > 2 and words[1].upper() == b"SETNAME":
            self._name = words[2].decode("utf-8", "replace")
        self._subscribed = self._subscribed or verb in (b"SUBSCRIBE", b"PSUBSCRIBE")  # replies are counted no more
        self._in_transaction = verb == b"MULTI" or (self._in_transaction and verb not in (b"EXEC", b"DISCARD"))

    async def _replies(self) -> None:
        while True:
            raw, push = await read_reply(self._from_server)
            if push or self._subscribed or not self._owed:
                self._to_client.write(raw)
                continue
            awaited = self._owed.popleft()
            match awaited.end:
                case Cut():
                    return
                case Lose():
                    self._mute = True
            if not self._mute:
                self._to_client.write(awaited.instead or raw)
                self._flush()
                await self._to_client.drain()

    def _flush(self) -> None:
        """Send those of our own replies that are due."""
        while self._owed and (canned := self._owed[0].canned) is not None:
            self._owed.popleft()
            self._to_client.write(canned)
