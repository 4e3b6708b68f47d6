"""A client that is kept for the process, used by event loops that run after each other, and beside each other."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx2
import pytest

from runner.llm.recording.event_loops import follow_loop
from runner.llm.recording.loading import watch_imports

from .clients import ASKED
from .wire_server import WireServer

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def wire() -> Iterator[WireServer]:
    with WireServer() as server:
        yield server


@contextlib.contextmanager
def loop_of_its_own() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A loop that goes on running in a thread, and what has a coroutine done there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda wanted: asyncio.run_coroutine_threadsafe(wanted, loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_loops_beside_each_other_have_connections_of_their_own(
    library: Any, wire: WireServer, account: Any, attempt: Any
) -> None:
    use_by_turns(library, wire, account, attempt)
    gc.collect()  # connections whose loop has ended cannot be closed


def use_by_turns(library: Any, wire: WireServer, account: Any, attempt: Any) -> None:
    watch_imports()
    client = library.AsyncClient(timeout=20)

    async def ask() -> list[int]:
        said = await asyncio.gather(*(client.post(wire.chat, json=ASKED) for _ in range(3)))
        return [one.status_code for one in said]

    async def ask_and_close() -> list[int]:
        found = await ask()
        await client.aclose()
        return found

    with loop_of_its_own() as on_first, loop_of_its_own() as on_second:
        ways = [on_first, asyncio.run, on_second, on_first, asyncio.run, on_second, asyncio.run]
        for way in ways:
            assert way(ask()) == [200] * 3
        attempt(lambda: [asyncio.run(ask()), asyncio.run(ask())])
        assert on_first(ask_and_close()) == [200] * 3
    assert (len(wire.log), account.paid.total(), account.in_doubt) == (3 * (len(ways) + 3), 6, 0)


def test_two_loops_that_use_it_for_the_first_time_at_once_have_pools_of_their_own() -> None:
    for _ in range(20):
        transport, together = httpx.AsyncHTTPTransport(), threading.Barrier(2, timeout=20)

        async def use(transport: Any = transport, together: threading.Barrier = together) -> object:
            together.wait()
            follow_loop(transport)
            together.wait()  # the loops run beside each other
            found = transport._pool._connections
            together.wait()
            return found

        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(lambda _, use=use: asyncio.run(use()), range(2))
        assert first is not second
