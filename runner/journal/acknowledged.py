"""A ring in memory in which a process remembers what the store acknowledged to it.

A store may lose its newest writes: its machine lost power before the last second was on disk, a replica that lagged was
promoted, a backup was put back. What it had acknowledged and does not know any more is done again; that this happened,
and what it costs, only those can tell to whom it was acknowledged. Of the ring the oldest lines go when it is full.

The rings of a worker's processes are in memory that they share: its main process reads them all, and what a dead one
noted is still there.
"""

import json
import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

from runner.core.clock import SYSTEM, Clock

WINDOW = 60.0  #: seconds for which it is remembered, at most
LARGEST, SMALLEST, ALL = 2**18, 2**14, 2**24  #: bytes of a ring, and of all rings of a worker
TOGETHER, LONG = 16, 3000  #: steps in a line, and characters of them; of longer names one: a line has to fit

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
        self.add(self.claim.label, '"claimed"')
        return self.claim

    def add(self, claim: str, said: str) -> None:
        """A line of texts, each as JSON."""
        line = f"[{self._clock.monotonic():.3f}, {claim}, {said}]\n".encode()
        room, long = self._size - _HEAD.size, len(line)
        if long > room // 4:
            return  # a name of many kilobytes
        memory, base = self._memory, self._start + _HEAD.size
        (written,) = _HEAD.unpack_from(memory, self._start)
        at = written % room
        if at + long <= room:
            memory[base + at : base + at + long] = line
        else:
            memory[base + at : base + room] = line[: room - at]
            memory[base : base + at + long - room] = line[room - at :]
        _HEAD.pack_into(memory, self._start, written + long)

    def lines(self) -> Iterator[tuple[str, int, str, list[str]]]:
        """What is remembered, oldest first: of which claim's task, under which token, what kind, and what."""
        since = self._clock.monotonic() - WINDOW
        for at, ref, token, kind, *what in _lines(self._memory, self._start, self._size):
            if at >= since:
                yield ref, token, kind, what


class ClaimLog:
    """What was acknowledged to a process about one claim: a task's threads may outlive it, into the next claim."""

    def __init__(self, log: Log, ref: str, token: int) -> None:
        self.label = f"{encode_basestring_ascii(ref)}, {token}"  # once: a line is written for each step
        self.count = 0  # of the steps that were recorded
        self._log, self._ref, self._token = log, ref, token

    def began(self, begun: str) -> None:
        """So much is under way now. The store may not know it yet."""
        self._log.add(self.label, f'"began", {encode_basestring_ascii(begun)}')

    def recorded(self, steps: Sequence[str], paid: str, begun: str) -> None:
        """The records of steps, which count alike, were acknowledged."""
        names = ", ".join(map(encode_basestring_ascii, steps))
        if len(steps) > 1 and (len(steps) > TOGETHER or len(names) > LONG):
            many = TOGETHER if len(steps) > TOGETHER else 1
            for start in range(0, len(steps), many):
                self.recorded(steps[start : start + many], paid, begun)
            return
        self.count += len(steps)
        self._log.add(self.label, f'{_recorded_as(begun, paid)}, "{self.count}", {names}')

    def ended(self, operation: str) -> None:
        """The claim was given up, by that operation."""
        self._log.add(self.label, f'"ended", "{operation}"')

    def acknowledged(self) -> Acknowledged:
        """What is remembered of it."""
        found = Acknowledged(self._ref, self._token)
        for ref, token, kind, what in self._log.lines():
            if (ref, token) == (self._ref, self._token):
                _note(found, kind, what)
        return found


@lru_cache(maxsize=256)
def _recorded_as(begun: str, paid: str) -> str:
    return ", ".join(map(encode_basestring_ascii, ("recorded", begun, paid)))


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
        for place in range(len(self._memory) // self._size):
            for ref, token, kind, what in self.log(place).lines():
                _note(found.setdefault((ref, token), Acknowledged(ref, token)), kind, what)
        return list(found.values())


def nowhere() -> Log:
    """A log that is never read."""
    return Log(bytearray(SMALLEST), 0, SMALLEST)


def _note(claim: Acknowledged, kind: str, what: list[str]) -> None:
    if kind == "recorded":
        claim.begun, paid, recorded, *steps = what
        claim.recorded = int(recorded)
        claim.steps |= dict.fromkeys(steps, paid)
    elif kind == "began":
        (claim.begun,) = what
    elif kind == "ended":
        (claim.ended,) = what


def _lines(memory: "mmap.mmap | bytearray", start: int, size: int) -> Iterator[Iterable[Any]]:
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
