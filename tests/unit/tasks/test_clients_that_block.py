"""A client that blocks, used in a coroutine: others go on, for what it sends leaves from a thread beside the loop."""

import threading
from typing import Any

import httpcore
import httpx
import pytest
import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from runner.core import waiting
from runner.llm.recording.loading import watch_imports


class Sent:
    """What stands in for a network: it says from which thread it was used, when the test lets it."""

    def __init__(self) -> None:
        self.free, self.began = threading.Event(), threading.Event()

    def handle_request(self, _: object) -> httpcore.Response:
        return httpcore.Response(200, content=self.wait().encode())

    def wait(self) -> str:
        self.began.set()
        assert self.free.wait(10)
        return threading.current_thread().name


def by_httpx(network: Sent, _: pytest.MonkeyPatch) -> str:
    transport = httpx.HTTPTransport()
    transport._pool = network
    return httpx.Client(transport=transport).post("https://api.openai.com/v1/chat/completions", json={}).text


def by_urllib3(network: Sent, patch: pytest.MonkeyPatch) -> str:
    def answer(*_: object, **__: object) -> urllib3.HTTPResponse:
        return urllib3.HTTPResponse(network.wait().encode(), status=200)

    patch.setattr(HTTPConnectionPool, "_make_request", answer)
    return urllib3.PoolManager().request("POST", "https://api.openai.com/v1/chat/completions").data.decode()


@pytest.mark.parametrize("send", [by_httpx, by_urllib3])
def test_it_blocks_nothing_else(send: Any, tasks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch_imports()
    network = Sent()

    async def asks() -> str:
        said: str = send(network, monkeypatch)
        return said

    def run() -> str:
        waiter = waiting.here()
        assert waiter is not None
        return waiter.run_coroutine(asks())

    # Given a coroutine that waits for its network
    tasks.begin(run)
    assert network.began.wait(10)
    # Then the loop does what else there is
    tasks.turned()
    network.free.set()
    assert tasks.results() == ["task"]
