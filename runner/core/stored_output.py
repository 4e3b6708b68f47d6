"""A stored output: the record, and how it is packed. Who only reads records needs no pydantic."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

_DEFLATED = "\0"
_FROM = 256  #: a shorter text is left as it is
_LARGE = 1 << 18  #: from here on, packing well takes too long


def load(stored: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the text and the JSON of a decoded record: the inverse of `runner.core.output.dump`."""
    data = stored.get("json")
    raw = stored.get("raw")
    return (json.dumps(data, ensure_ascii=False) if raw is None else str(raw)), data


def pack_output(rest: str) -> bytes:
    """Return what follows sequence and token in a record, compressed if that is shorter.

    Sequence and token are plain text, for the scripts. After them comes the rest of the JSON object, or a zero byte,
    which JSON never contains, and the compressed rest.
    """
    text = rest.encode()
    if len(text) < _FROM:
        return text
    packer = zlib.compressobj(9 if len(text) < _LARGE else 1, zlib.DEFLATED, -15)
    packed = packer.compress(text) + packer.flush()
    return text if len(packed) > len(text) * 0.95 else _DEFLATED.encode() + packed


def unpack_output(text: str) -> dict[str, Any]:
    """Parse a stored record. A client that decodes responses passes bytes that are not text as surrogates."""
    head, deflated, packed = text.partition(_DEFLATED)
    if deflated:
        head += zlib.decompress(packed.encode("utf-8", "surrogateescape"), -15).decode()
    found: dict[str, Any] = json.loads(head)
    return found
