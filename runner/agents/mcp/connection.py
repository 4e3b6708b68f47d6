"""Connections to MCP servers: opened when a task first needs one, closed when the task ends.

Each has its own thread with an event loop: tools are called from anywhere, and none exists at a fork.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

from runner.agents.mcp.servers import MCPServerHTTP, MCPServerStdio, Server
from runner.core.context_value import ContextValue
from runner.core.errors import MissingDependency, TaskError, one_line
from runner.journal.cancellation.cancel_scope import Wakeup
from runner.journal.current_journal import at_end

CLOSING = 10.0  #: seconds that a connection may take to close


class Connections:
    """The connections of one task, by server."""

    def __init__(self) -> None:
        self._open: dict[int, Connection] = {}
        self._lock = threading.Lock()

    def to(self, server: Server) -> "Connection":
        """Return the connection to a server; a lost one is reopened."""
        with self._lock:
            found = self._open.get(id(server))
            if found is not None and not found.is_alive:
                found.close()
                found = None
            if found is None:
                found = self._open[id(server)] = Connection(server)
            return found

    def close(self) -> None:
        """Close all."""
        with self._lock:
            closing, self._open = list(self._open.values()), {}
        for one in closing:
            one.close()


_current: ContextVar[Connections | None] = ContextVar("runner_mcp_connections", default=None)
_of_tasks: "weakref.WeakKeyDictionary[contextlib.ExitStack, Connections]" = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _of_task() -> Connections | None:
    """Return the connections of the enclosing task, which are closed when it ends; None outside a task."""
    with _making:
        if (ends := at_end()) is None:
            return None
        if ends not in _of_tasks:
            _of_tasks[ends] = ends.enter_context(contextlib.closing(Connections()))
        return _of_tasks[ends]


@contextlib.contextmanager
def connections() -> Iterator[Connections]:
    """The connections for this context; inside a task or another such context, its connections."""
    outer = _current.get() or _of_task()
    if outer is not None:
        yield outer
        return
    made = Connections()
    with contextlib.closing(made), ContextValue(_current, made):
        yield made


class Connection:
    """One session with one server. Each operation waits in the caller's thread, where it can be interrupted."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: Any = None
        self._lost = False
        self._over = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._session: asyncio.Task[None] | None = None
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        # No context of the task: what happens in here is not one of its steps.
        self._thread = threading.Thread(target=self._live, name=f"mcp {server.name}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the session is open."""
        return self._thread.is_alive() and not self._lost

    def list_tools(self) -> list[dict[str, Any]]:
        """Return the server's tools as JSON. Raises `TaskError`."""

        async def ask() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            cursor: str | None = None
            while True:
                page = await self._client.list_tools(cursor=cursor)
                found += [_plain(one) for one in page.tools]
                cursor = page.next_cursor
                if not cursor:
                    return found

        return self._do(ask, "gives no list of its tools")  # type: ignore[no-any-return]  # `_do` gives what it is asked for

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool and return the server's result. Raises `TaskError`."""
        return self._do(lambda: self._client.call_tool(tool, arguments), f"does not answer {tool!r}")

    def close(self) -> None:
        """End the session, and the process that was started for it."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(CLOSING)

    # -- inside

    def _end(self) -> None:
        self._over.set()
        if not self._ready.done() and self._session is not None:
            self._session.cancel()

    def _do(self, ask: Callable[[], Coroutine[Any, Any, Any]], what: str) -> Any:
        try:
            _patiently(self._ready, self._server.timeout)
            try:
                asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
            except RuntimeError:
                raise ConnectionError("the connection was closed") from None
            try:
                return _patiently(asked, self._server.timeout)
            except BaseException:
                asked.cancel()
                raise
        except MissingDependency:
            raise
        except Exception as error:
            self._lost = not _is_answer(error)
            raise TaskError(f"the MCP server {self._server.name!r} {what}: {_said(error)}") from error

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._session = self._loop.create_task(self._talk())
            self._loop.run_until_complete(self._session)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
        finally:
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _talk(self) -> None:
        try:
            from mcp import Client  # type: ignore[attr-defined, unused-ignore]  # version 1 has none
        except ImportError:
            raise MissingDependency("MCP servers need the package mcp: pip install 'crew-runner[mcp]'") from None
        async with contextlib.AsyncExitStack() as stack:
            transport = await _transport(self._server, stack)
            self._client = await stack.enter_async_context(Client(transport, read_timeout_seconds=self._server.timeout))
            self._ready.set_result(None)
            await self._over.wait()


async def _transport(server: Server, stack: contextlib.AsyncExitStack) -> Any:
    if isinstance(server, MCPServerStdio):
        from mcp import StdioServerParameters, stdio_client

        given = StdioServerParameters(command=server.command, args=server.args, env=server.env)
        return stdio_client(given, errlog=_stderr(stack))
    assert isinstance(server, MCPServerHTTP)
    if not server.streamable:
        from mcp.client.sse import sse_client

        return sse_client(server.url, headers=server.headers)
    import httpx2  # what mcp itself uses
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(server.timeout, read=None)  # a server may hold a stream open
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=server.headers, timeout=timeout))
    return streamable_http_client(server.url, http_client=http)  # type: ignore[arg-type, unused-ignore]  # version 2


def _stderr(stack: contextlib.AsyncExitStack) -> Any:
    """The file for the server's stderr: a worker's own stderr is an object that a process cannot inherit."""
    try:
        sys.__stderr__.fileno()  # type: ignore[union-attr]  # None has no such attribute, and is caught
    except (AttributeError, OSError, ValueError):
        return stack.enter_context(open(os.devnull, "w"))  # noqa: PTH123 - it is no file of ours
    return sys.__stderr__


def _patiently(asked: "concurrent.futures.Future[Any]", timeout: float) -> Any:
    """Wait for the answer; a stop can be raised in this thread meanwhile."""
    with Wakeup() as answered:
        asked.add_done_callback(answered.wake)
        end = time.monotonic() + timeout
        while not asked.done():
            if not answered.wait(end - time.monotonic()) and not asked.done():
                raise TimeoutError(f"no answer within {timeout:g} s")
    return asked.result()


def _is_answer(error: Exception) -> bool:
    """Whether the error is the server's answer, and not a lost connection."""
    from mcp import MCPError  # type: ignore[attr-defined, unused-ignore]  # version 1 has none
    from mcp.types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.error.code != CONNECTION_CLOSED


def _plain(tool: Any) -> dict[str, Any]:
    return {
        "name": str(tool.name),
        "description": str(tool.description or tool.title or tool.name),
        "parameters": dict(tool.input_schema or {}),
    }


def _said(error: BaseException) -> str:
    """Format an error in one line; of an exception group, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {one_line(error)}"[:300]
