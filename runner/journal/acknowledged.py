"""What the store has lately acknowledged to the processes of a worker, in memory that its main process sees.

A store may lose its newest writes: its machine lost power before the last second was on disk, a replica that lagged was
promoted, a backup was put back. What it had acknowledged and does not know any more is done again; that this happened,
and what it costs, only those can tell to whom it was acknowledged.

Each process writes a ring of its own, in memory that is shared by fork, so that what a dead one was told is known as
well. The oldest goes when the ring is full.
"""

import json
import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Any

from runner.core.clock import SYSTEM, Clock

WINDOW = 60.0  #: seconds for which it is remembered, at most
LARGEST, SMALLEST, ALL = 2**18, 2**14, 2**24  #: bytes of a ring, and of all rings of a worker

_HEAD = struct.Struct("=Q")  # how many bytes were ever written


@dataclass
class Acknowledged:
    """What of one claim is remembered."""

    ref: str
    token: int
    steps: dict[str, str] = field(default_factory=dict)  #: recorded: by name, what each is in the account, as JSON
    recorded: int = 0  #: how many steps in all, with those that are not remembered any more
    begun: str = ""  #: what was under way, likewise
    ended: str = ""  #: by what operation the claim was given up: commit, release, ...; "" if it was not


class Log:
    """The ring of one process. ``claim`` is for acknowledgements of the claim that it was given last."""

    def __init__(self, memory: "mmap.mmap | bytearray", start: int, size: int, clock: Clock = SYSTEM) -> None:
        self._memory, self._start, self._size = memory, start, size
        self._clock = clock
        self.claim = ClaimLog(self, "", 0)

    def claimed(self, ref: str, token: int) -> "ClaimLog":
        """A claim was given."""
        self.claim = ClaimLog(self, ref, token)
        self.add(self.claim.label, "claimed")
        return self.claim

    def add(self, claim: str, *what: str) -> None:
        """A line."""
        said = ", ".join(map(encode_basestring_ascii, what))
        line = f"[{self._clock.monotonic():.3f}, {claim}, {said}]\n".encode()
        room = self._size - _HEAD.size
        if len(line) > room // 4:
            return  # a name of many kilobytes
        (written,) = _HEAD.unpack_from(self._memory, self._start)
        at, base = written % room, self._start + _HEAD.size
        first = line[: room - at]
        self._memory[base + at : base + at + len(first)] = first
        self._memory[base : base + len(line) - len(first)] = line[len(first) :]
        _HEAD.pack_into(self._memory, self._start, written + len(line))


class ClaimLog:
    """What was acknowledged to a process about one claim: a task's threads may outlive it, into the next claim."""

    def __init__(self, log: Log, ref: str, token: int) -> None:
        self.label = f"{json.dumps(ref)}, {token}"  # once for all that follows: a line is written for each step
        self._log = log
        self._recorded = 0

    def began(self, begun: str) -> None:
        """So much is under way now. The store may not know it yet."""
        self._log.add(self.label, "began", begun)

    def recorded(self, step: str, paid: str, begun: str) -> None:
        """A step's record was acknowledged."""
        self._recorded += 1
        self._log.add(self.label, "recorded", begun, step, paid, str(self._recorded))

    def ended(self, operation: str) -> None:
        """The claim was given up, by that operation."""
        self._log.add(self.label, "ended", operation)


class Logs:
    """The rings of a worker's processes, one for each place in its pool."""

    def __init__(self, places: int, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._size = max(SMALLEST, min(LARGEST, ALL // max(places, 1)))
        self._memory = mmap.mmap(-1, self._size * places)  # what is never written takes no room

    def log(self, place: int) -> Log:
        """That of this place."""
        return Log(self._memory, place * self._size, self._size, self._clock)

    def claims(self) -> list[Acknowledged]:
        """What is remembered, by claim."""
        found: dict[tuple[str, int], Acknowledged] = {}
        since = self._clock.monotonic() - WINDOW
        for start in range(0, len(self._memory), self._size):
            for at, ref, token, kind, *what in _lines(self._memory, start, self._size):
                if at >= since:
                    _note(found.setdefault((ref, token), Acknowledged(ref, token)), kind, what)
        return list(found.values())


def nowhere() -> Log:
    """A log that is never read."""
    return Log(bytearray(SMALLEST), 0, SMALLEST)


def _note(claim: Acknowledged, kind: str, what: list[str]) -> None:
    if kind == "recorded":
        claim.begun, step, paid, recorded = what
        claim.recorded = int(recorded)
        claim.steps[step] = paid
    elif kind == "began":
        (claim.begun,) = what
    elif kind == "ended":
        (claim.ended,) = what


def _lines(memory: mmap.mmap, start: int, size: int) -> Iterator[Iterable[Any]]:
    """The lines that are whole, oldest first. One that is being written over meanwhile is none."""
    (written,) = _HEAD.unpack_from(memory, start)
    room, base = size - _HEAD.size, start + _HEAD.size
    at = written % room
    text = memory[base : base + at] if written <= room else memory[base + at : base + room] + memory[base : base + at]
    for line in text.split(b"\n")[written > room : -1]:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, list) and len(found) >= 4:
            yield found
