"""Encodes a state as the difference from its parent.

A text is a list of *parts*. An entry tells which runs of the parent's parts it takes over, and has the rest as text.
The new text of a line's entries is one deflate stream: each is compressed with the 32 KB of new text before it as
dictionary. So a checkpoint costs what is new, whatever its state has grown to; and a state is read by going through
its line's entries from the last one that stands alone.

Why not pieces by hash, in a tree: measured with 100 tasks of 1 KB, the hashes on the way to each change and what Redis
needs for each piece cost more than the change.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_WINDOW = 32_768  #: what deflate can look back
_ENDS = re.compile(r"[}\]],")  #: where an object or a list in a list ends
_LONGEST = 512  #: a part longer than this is cut
_LARGE = 1 << 18  #: from here on, packing well takes too long
_WORTH = 24  #: a shorter part is not worth saying where it was

_PIECES = re.compile(r"(?s).{256}[^,]{0,255},?|.+")
"""How a long part is cut: from its beginning, so that it may grow at its end."""


def split(text: str) -> list[str]:
    """The text in parts. A change in one place leaves the others as they are."""
    parts: list[str] = []
    start = 0
    for found in _ENDS.finditer(text):
        end = found.end()
        if end - start <= _LONGEST:
            parts.append(text[start:end])
        else:
            parts += _PIECES.findall(text, start, end)
        start = end
    parts += _PIECES.findall(text, start)
    return parts


@dataclass(frozen=True, slots=True)
class State:
    """A text in parts, and the new text before its next one."""

    parts: Sequence[str] = ()
    window: bytes = b""

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(self.parts)


def encode(parts: list[str], base: State) -> tuple[bytes, State]:
    """The entry that makes a state of ``parts`` from ``base``, and that state."""
    program: list[int] = []
    literals: list[str] = []
    at = 0  # where the parent's next part is expected
    for new, start, count in _runs(parts, base.parts):
        program += [len(new), *(len(part.encode()) for part in new), count]
        literals += new
        if count:
            program.append((start - at) * 2 if start >= at else (at - start) * 2 - 1)
            at = start + count
    fresh = "".join(literals).encode()
    opcodes = _varints(program)
    payload = _varints([len(opcodes)]) + opcodes + fresh
    return _deflate(payload, base.window), State(parts, _slide(base.window, fresh))


def decode(entry: bytes, base: State) -> State:
    """The inverse of `encode`. Raises ValueError for what is no entry of this base."""
    try:
        unpacker = zlib.decompressobj(-15, base.window)
        payload = unpacker.decompress(entry)
        if not unpacker.eof:
            raise ValueError("it is cut off")
        length, begin = _varint(payload, 0)
        program = _read_varints(payload[begin : begin + length])
        fresh = payload[begin + length :]
        parts: list[str] = []
        at = used = 0
        for new in program:
            for _ in range(new):
                size = next(program)
                parts.append(fresh[used : used + size].decode())
                used += size
            count = next(program)
            if count:
                step = next(program)
                at += step // 2 if step % 2 == 0 else -(step + 1) // 2
                if at < 0 or at + count > len(base.parts):
                    raise ValueError("it refers to text that its parent does not have")
                parts += base.parts[at : at + count]
                at += count
        if used != len(fresh):
            raise ValueError("it has text left over")
    except (zlib.error, StopIteration, IndexError, RuntimeError) as error:
        raise ValueError(f"not an entry: {error}") from None
    return State(parts, _slide(base.window, fresh))


def _runs(parts: list[str], old: Sequence[str]) -> Iterator[tuple[list[str], int, int]]:
    """What is new, then a run of old parts (start, count): again and again; the last run may be empty."""
    places: dict[str, int] = {}
    for i, part in enumerate(old):
        if len(part) >= _WORTH:
            places.setdefault(part, i)
    new: list[str] = []
    i = at = 0
    while i < len(parts):
        # The place where the parent continues is the likeliest match.
        start = at if at < len(old) and old[at] == parts[i] else places.get(parts[i], -1)
        if start < 0:
            new.append(parts[i])
            i += 1
            continue
        end = start
        while i < len(parts) and end < len(old) and old[end] == parts[i]:
            i, end = i + 1, end + 1
        while new and start > 0 and old[start - 1] == new[-1]:
            new.pop()
            start -= 1
        yield new, start, end - start
        new, at = [], end
    if new:
        yield new, 0, 0


def _slide(window: bytes, fresh: bytes) -> bytes:
    return (window + fresh[-_WINDOW:])[-_WINDOW:]


def _deflate(data: bytes, window: bytes) -> bytes:
    if len(data) > _LARGE:
        return _packed(data, window, 6, zlib.Z_DEFAULT_STRATEGY)
    # Text is best packed by default; among ids and digests, looking for short repetitions costs more than it finds.
    return min((_packed(data, window, 9, how) for how in (zlib.Z_FILTERED, zlib.Z_DEFAULT_STRATEGY)), key=len)


def _packed(data: bytes, window: bytes, level: int, strategy: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy, window)
    return packer.compress(data) + packer.flush()


def _varints(numbers: list[int]) -> bytes:
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] > 127:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
    return number | data[at] << shift, at + 1


def _read_varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number
