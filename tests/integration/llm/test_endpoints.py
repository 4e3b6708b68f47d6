"""Services that RUNNER_MODEL_ENDPOINTS names: their calls are journaled as those of the known vendors are."""

from typing import Any

import httpx
import pytest
import requests

from runner.core.ledger import AccountKey
from runner.llm.recording.parsers import parsers

from .wire_server import Reply, WireServer


@pytest.fixture
def wire(monkeypatch):
    with WireServer() as one:
        host = one.url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("RUNNER_MODEL_ENDPOINTS", f"{host}/v1/search, 127.*/v1/audio/*")
        parsers.cache_clear()
        yield one
    monkeypatch.undo()
    parsers.cache_clear()


def with_httpx(url: str, **options: Any) -> bytes:
    return httpx.post(url, timeout=20, **options).content


def with_requests(url: str, **options: Any) -> bytes:
    return requests.post(url, timeout=20, **options).content


@pytest.mark.parametrize("client", [with_httpx, with_requests])
def test_what_is_named_is_a_call_and_nothing_else(client, wire, account, attempt):
    spoken = Reply(body=b"\xff\xfbsound", headers={"Content-Type": "audio/mpeg"})
    wire.reply = lambda number: spoken if "audio" in wire.log[-1][1] else Reply(body=b'{"results": []}')

    def task() -> Any:
        return [
            client(f"{wire.url}/search?key=secret", json={"query": "owls"}),
            client(f"{wire.url}/audio/speech", json={"model": "tts", "input": "hu"}),
            client(f"{wire.url}/searches", json={"query": "owls"}),
        ]

    first = attempt(task)
    assert first == [b'{"results": []}', b"\xff\xfbsound", b'{"results": []}']
    assert attempt(task) == first
    assert [path for _, path, _, _ in wire.log] == [
        *("/v1/search?key=secret", "/v1/audio/speech", "/v1/searches", "/v1/searches")
    ]
    search = wire.url.removeprefix("http://") + "/search"
    assert account.paid == {AccountKey("model", "", search): 1, AccountKey("model", "", "tts"): 1}
    assert "secret" not in str(account.recorded)
