"""Calls of models by gRPC are counted by host and method, sync and awaited."""

import asyncio
from typing import Any

import pytest

from runner import Crew, Task
from runner.llm.recording import unrecorded

grpc = pytest.importorskip("grpc")
pytest.importorskip("grpc.aio")

MODEL, OTHER = "/google.ai.generativelanguage.v1beta.GenerativeService/StreamGenerateContent", "/shop.Orders/List"
CLOSED = "127.0.0.1:9"


def test_calls_of_models_are_counted_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(unrecorded, "_count", seen.append)

    def run(_: Any) -> str:
        with grpc.insecure_channel(CLOSED) as channel:
            for method in (MODEL, OTHER):
                with pytest.raises(grpc.RpcError):
                    channel.unary_unary(method)(b"", timeout=5)
            with pytest.raises(grpc.RpcError):
                list(channel.unary_stream(MODEL)(b"", timeout=5))
        asyncio.run(awaited())
        return "done"

    async def awaited() -> None:
        async with grpc.aio.insecure_channel(CLOSED) as channel:
            with pytest.raises(grpc.RpcError):
                await channel.unary_unary(MODEL)(b"", timeout=5)

    Crew(tasks=[Task(name="a", run=run)]).kickoff()
    assert seen == [f"https://{CLOSED}{MODEL}"] * 3
