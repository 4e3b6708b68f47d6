"""Connections to models by WebSocket, which no journal keeps: each is counted, by host and path."""

import functools
from collections.abc import Callable
from typing import Any

from runner.llm.recording import unrecorded


def install(module: Any) -> None:
    """Watch what is opened by ``websockets.client``, or by ``websocket._core``, once in a process."""
    if module.__name__ == "websocket._core":
        _count(module.WebSocket, lambda url: str(url))
    else:
        _count(module.ClientProtocol, None)


def _count(owner: Any, address: Callable[[Any], str] | None) -> None:
    connect = owner.connect
    if hasattr(connect, "counts_calls"):
        return

    @functools.wraps(connect)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        unrecorded.look_at_socket(
            _of_protocol(self.uri) if address is None else address(args[0] if args else kwargs["url"])
        )
        return connect(self, *args, **kwargs)

    counted.counts_calls = True  # type: ignore[attr-defined]  # a mark on a function
    owner.connect = counted


def _of_protocol(to: Any) -> str:
    port = "" if to.port == (443 if to.secure else 80) else f":{to.port}"
    return f"https://{to.host}{port}{to.path}"
