"""Outputs as they are stored: JSON, of which what is long is deflated.

A record begins with its sequence and token in plain text, for the scripts. After that comes the rest of the JSON
object, or a zero byte, which no JSON holds, and the rest deflated. From a client that decodes, bytes that are no text
come as surrogates (`connection.connect`).
"""

import json
import zlib
from typing import Any

_MARK = "\0"
_FROM = 256  #: a shorter text is left as it is
_LARGE = 1 << 18  #: from here on, packing well takes too long


def pack_output(rest: str) -> bytes:
    """The rest of a record, shorter if it can be."""
    plain = rest.encode()
    if len(plain) < _FROM:
        return plain
    packer = zlib.compressobj(9 if len(plain) < _LARGE else 1, zlib.DEFLATED, -15)
    packed = packer.compress(plain) + packer.flush()
    if len(packed) > len(plain) * 0.95:
        return plain
    return _MARK.encode() + packed


def unpack_output(text: str) -> dict[str, Any]:
    """A record from how it is stored."""
    head, mark, packed = text.partition(_MARK)
    if mark:
        head += zlib.decompress(packed.encode("utf-8", "surrogateescape"), -15).decode()
    found: dict[str, Any] = json.loads(head)
    return found
