"""How a stored output is read. Who only reads records needs no pydantic."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

DEFLATED = "\0"  #: what follows is compressed


def load(stored: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the text and the JSON of a decoded record: the inverse of `runner.core.output.dump`."""
    data = stored.get("json")
    raw = stored.get("raw")
    return (json.dumps(data, ensure_ascii=False) if raw is None else str(raw)), data


def unpack_output(text: str) -> dict[str, Any]:
    """Parse a stored record. A client that decodes responses passes bytes that are not text as surrogates."""
    head, deflated, packed = text.partition(DEFLATED)
    if deflated:
        head += zlib.decompress(packed.encode("utf-8", "surrogateescape"), -15).decode()
    found: dict[str, Any] = json.loads(head)
    return found
