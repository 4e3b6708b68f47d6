"""Redis's protocol, as far as a proxy needs it: where a command or a reply ends, and what a command says."""

from asyncio import StreamReader

_AGGREGATES = {b"*": 1, b"~": 1, b">": 1, b"%": 2, b"|": 2}  #: how many values an announced element has
_BULKS = b"$=!"


async def read_command(reader: StreamReader) -> tuple[bytes, list[bytes]]:
    """Read one command. Returns its bytes and its words. Raises `EOFError` where the stream ends first."""
    head = await _line(reader)
    if not head.startswith(b"*"):
        return head, head.split()  # an inline command
    raw, words = [head], []
    for _ in range(int(head[1:])):
        size = await _line(reader)
        body = await reader.readexactly(int(size[1:]) + 2)
        raw += (size, body)
        words.append(body[:-2])
    return b"".join(raw), words


async def read_reply(reader: StreamReader) -> tuple[bytes, bool]:
    """Read one reply. Returns its bytes, and whether it is a push, which answers no command. Raises `EOFError`."""
    raw: list[bytes] = []
    kind = await _value(reader, raw)
    return b"".join(raw), kind == b">"


async def _value(reader: StreamReader, raw: list[bytes]) -> bytes:
    head = await _line(reader)
    raw.append(head)
    kind = head[:1]
    if kind in _AGGREGATES:
        for _ in range(max(int(head[1:]), 0) * _AGGREGATES[kind]):
            await _value(reader, raw)
        if kind == b"|":  # attributes stand before the value they belong to
            await _value(reader, raw)
    elif kind in _BULKS and int(head[1:]) >= 0:
        raw.append(await reader.readexactly(int(head[1:]) + 2))
    return kind


async def _line(reader: StreamReader) -> bytes:
    line = await reader.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    return line
