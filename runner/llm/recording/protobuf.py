"""The fields of serialized protobuf messages, by their numbers: whoever's generated classes wrote them. Pure."""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field that stands in a message: its number, and its value. Raises ValueError if it is no such message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field of the wire type {kind}")
        if at + size > len(message):
            raise ValueError("it breaks off")
        yield number, message[at : at + size]
        at += size


def field(message: bytes, wanted: int) -> bytes:
    """The text, or the message, that a field holds: the last one, as of any that does not repeat; empty for none."""
    found = b""
    try:
        for number, value in fields(message):
            if number == wanted and isinstance(value, bytes):
                found = value
    except ValueError:
        return b""
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that stands there, and where the next thing stands."""
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("it breaks off")
