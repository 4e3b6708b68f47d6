"""Connections to models by WebSocket, which no journal keeps: each is counted, by host and path."""

from typing import Any

from runner.llm.recording import unrecorded
from runner.llm.recording.wrapping import precede


def install(module: Any) -> None:
    """Watch what is opened by ``websockets.client``, or by ``websocket._core``, once in a process."""
    if module.__name__ == "websocket._core":
        precede(module.WebSocket, "connect", lambda _, url, *__, **___: unrecorded.look_at_socket(str(url)))
    else:
        precede(module.ClientProtocol, "connect", lambda protocol: unrecorded.look_at_socket(_address(protocol.uri)))


def _address(to: Any) -> str:
    port = "" if to.port == (443 if to.secure else 80) else f":{to.port}"
    return f"https://{to.host}{port}{to.path}"
