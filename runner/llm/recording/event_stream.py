"""Streams of events as Amazon's services send them: binary messages with headers, a payload and checksums. Pure."""

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

_PRELUDE = 12  #: bytes of a message before its headers: its length, that of its headers, their checksum
_TEXT = 7  #: the type of a header that is text
_BROKEN = ("exception", "error")


def is_one(body: bytes) -> bool:
    """Whether a body is such a stream, or the beginning of one."""
    return len(body) >= _PRELUDE and zlib.crc32(body[:8]) == int.from_bytes(body[8:12])


def is_complete(body: bytes) -> bool:
    """Whether the last message is whole, and none reports an error."""
    messages = list(_messages(body))
    is_whole = bool(messages) and messages[-1][0] == len(body)
    return is_whole and not any(headers.get(":message-type") in _BROKEN for _, headers, _ in messages)


def reports_error(piece: bytes) -> bool:
    """Whether a message that says that the stream breaks off is in a piece of one."""
    return any(b":message-type\x07\x00%c%b" % (len(kind), kind.encode()) in piece for kind in _BROKEN)


def events_of(body: bytes) -> Iterator[Any]:
    """Yield the JSON of each message; a chunk of a model's own answer is unwrapped from it."""
    for _, _, payload in _messages(body):
        said = _json(payload)
        if isinstance(said, dict) and isinstance(said.get("bytes"), str):
            said = _json(base64.b64decode(said["bytes"]))
        yield said


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _messages(body: bytes) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Yield the end of each whole message, its text headers and its payload."""
    at = 0
    while is_one(body[at : at + _PRELUDE]):
        total, length = struct.unpack_from(">II", body, at)
        if at + total > len(body) or total < length + _PRELUDE + 4:
            return
        headers = body[at + _PRELUDE : at + _PRELUDE + length]
        payload = body[at + _PRELUDE + length : at + total - 4]
        at += total
        yield at, _headers(headers), payload


def _headers(data: bytes) -> dict[str, str]:
    found, at = {}, 0
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]
        if at + 3 > len(data) or data[at] != _TEXT:
            break
        size = int.from_bytes(data[at + 1 : at + 3])
        found[name.decode()] = data[at + 3 : at + 3 + size].decode()
        at += 3 + size
    return found
