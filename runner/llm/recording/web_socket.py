"""Connections to models by WebSocket, which no journal keeps: each is counted, by host and path."""

import functools
from typing import Any

from runner.llm.recording import unrecorded


def install(module: Any) -> None:
    """Watch what is opened by ``websockets.client``, sync or awaited, once in a process."""
    protocol = module.ClientProtocol
    connect = protocol.connect
    if hasattr(connect, "counts_calls"):
        return

    @functools.wraps(connect)
    def counted(self: Any) -> Any:
        to = self.uri
        port = "" if to.port == (443 if to.secure else 80) else f":{to.port}"
        unrecorded.look_at_socket(f"https://{to.host}{port}{to.path}")
        return connect(self)

    counted.counts_calls = True  # type: ignore[attr-defined]  # a mark on a function
    protocol.connect = counted
