"""A ring buffer of the writes that the store acknowledged to a process in the last minute.

A store may lose its newest writes: a power cut before the last second was on disk, a lagging replica that was promoted,
a backup that was restored. Lost work is done again, but only the processes whose writes were acknowledged can report
the loss and its cost. When the ring is full, its oldest lines are overwritten.

The rings of a worker's processes are in shared memory: the main process reads them all, including those of dead
processes. If all tasks are in the main process, its logs are ordinary objects instead, which only take the space of
their content: a ring takes a page of memory from its first line on.
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
    """The acknowledged writes of one claim."""

    ref: str
    token: int
    steps: dict[str, str] = field(default_factory=dict)  #: recorded: by name, what each is in the account, as JSON
    recorded: int = 0  #: how many steps in all, with those that are not remembered any more
    begun: str = ""  #: what was under way, likewise
    ended: str = ""  #: by what operation the claim was given up: commit, release, ...; "" if it was not


class Log:
    """The ring of one process. ``claim`` is the log of its latest claim."""

    def __init__(self, memory: "mmap.mmap | bytearray", start: int, size: int, clock: Clock = SYSTEM) -> None:
        self._memory, self._start, self._size = memory, start, size
        self.now = clock.monotonic
        self.claim = ClaimLog(self, "", 0)

    def claimed(self, ref: str, token: int) -> "ClaimLog":
        """A claim was granted."""
        self.claim = ClaimLog(self, ref, token)
        self.add(f'[{self.now():.3f}, {self.claim.label}, "claimed"]\n'.encode())
        return self.claim

    def add(self, line: bytes) -> None:
        """Append a line: a time of `now`, and texts, as a list in JSON."""
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
        """Return the lines, oldest first: the claim's task, its token, the kind of the line and its content."""
        since = self.now() - WINDOW
        for at, ref, token, kind, *what in _read(self._texts()):
            if at >= since:
                yield ref, token, kind, what

    def _texts(self) -> Sequence[bytes]:
        """The lines, oldest first. A line that is being overwritten is skipped."""
        memory = self._memory
        (written,) = _HEAD.unpack_from(memory, self._start)
        room, base = self._size - _HEAD.size, self._start + _HEAD.size
        at = written % room
        old = memory[base + at : base + room] if written > room else b""
        return bytes(old + memory[base : base + at]).split(b"\n")[written > room : -1]


class OwnLog(Log):
    """The same in this process alone. Lines older than the window are dropped when a claim is granted."""

    def __init__(self, size: int, clock: Clock = SYSTEM) -> None:
        super().__init__(bytearray(), 0, size, clock)
        self._lines: list[bytes] = []
        self._taken = 0

    def claimed(self, ref: str, token: int) -> "ClaimLog":
        """A claim was granted."""
        since, old = self.now() - WINDOW, 0
        for line in self._lines:
            if float(line[1 : line.index(b",")]) >= since:
                break
            old += 1
        self._drop(old)
        return super().claimed(ref, token)

    def add(self, line: bytes) -> None:
        """Append a line: a time of `now`, and texts, as a list in JSON."""
        if len(line) > self._size // 4:
            return  # a name of many kilobytes
        self._lines.append(line)
        self._taken += len(line)
        if self._taken > self._size:
            self._drop(len(self._lines) // 4)

    def _drop(self, many: int) -> None:
        self._taken -= sum(map(len, self._lines[:many]))
        del self._lines[:many]

    def _texts(self) -> Sequence[bytes]:
        return tuple(self._lines)


class ClaimLog:
    """The acknowledged writes of one claim in a process. A task's threads may outlive it, into the next claim."""

    def __init__(self, log: Log, ref: str, token: int) -> None:
        self.label = f"{encode_basestring_ascii(ref)}, {token}"  # once: a line is written for each step
        self.count = 0  # of the steps that were recorded
        self._log, self._ref, self._token = log, ref, token
        self._ready = b""

    def began(self, begun: str) -> None:
        """Steps are in flight that the store may not know yet."""
        self._log.add(f'[{self._log.now():.3f}, {self.label}, "began", {encode_basestring_ascii(begun)}]\n'.encode())

    def prepare(self, step: str, paid: str, begun: str) -> None:
        """Have the line ready that `add_prepared` adds if the record of this step is acknowledged."""
        line = f"[{self._log.now():.3f}, {self.label}, {_recorded_as(begun, paid)}"
        self._ready = f'{line}, "{self.count + 1}", {encode_basestring_ascii(step)}]\n'.encode()

    def add_prepared(self) -> None:
        """The record was acknowledged."""
        self.count += 1
        self._log.add(self._ready)

    def recorded(self, steps: Sequence[str], paid: str, begun: str) -> None:
        """The records of these steps, which count alike, were acknowledged."""
        one = len(steps) == 1  # as in most tasks
        names = encode_basestring_ascii(steps[0]) if one else ", ".join(map(encode_basestring_ascii, steps))
        if not one and (len(steps) > TOGETHER or len(names) > LONG):
            many = TOGETHER if len(steps) > TOGETHER else 1
            for start in range(0, len(steps), many):
                self.recorded(steps[start : start + many], paid, begun)
            return
        self.count += len(steps)
        line = f"[{self._log.now():.3f}, {self.label}, {_recorded_as(begun, paid)}"
        self._log.add(f'{line}, "{self.count}", {names}]\n'.encode())

    def ended(self, operation: str) -> None:
        """The claim was given up by that operation."""
        self._log.add(f'[{self._log.now():.3f}, {self.label}, "ended", "{operation}"]\n'.encode())

    def acknowledged(self) -> Acknowledged:
        """Return what is known of the claim."""
        found = Acknowledged(self._ref, self._token)
        for ref, token, kind, what in self._log.lines():
            if (ref, token) == (self._ref, self._token):
                _note(found, kind, what)
        return found


@lru_cache(maxsize=256)
def _recorded_as(begun: str, paid: str) -> str:
    return ", ".join(map(encode_basestring_ascii, ("recorded", begun, paid)))


class Logs:
    """The logs of a worker's pool, one for each slot; ``forked``: its slots are processes of their own."""

    def __init__(self, places: int, clock: Clock = SYSTEM, *, forked: bool = True) -> None:
        self._clock, self._places = clock, places
        self._size = max(SMALLEST, min(LARGEST, ALL // max(places, 1)))
        self._shared = mmap.mmap(-1, self._size * places) if forked else None  # what is never written takes no room
        self._own: dict[int, OwnLog] = {}

    def log(self, place: int) -> Log:
        """Return the log of this slot."""
        if self._shared is not None:
            return Log(self._shared, place * self._size, self._size, self._clock)
        if place not in self._own:
            self._own[place] = OwnLog(self._size, self._clock)
        return self._own[place]

    def claims(self) -> list[Acknowledged]:
        """Return the acknowledged writes of all logs, by claim."""
        found: dict[tuple[str, int], Acknowledged] = {}
        for place in range(self._places) if self._shared is not None else tuple(self._own):
            for ref, token, kind, what in self.log(place).lines():
                _note(found.setdefault((ref, token), Acknowledged(ref, token)), kind, what)
        return list(found.values())


def nowhere() -> Log:
    """Return a log that is never read."""
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


def _read(lines: Iterable[bytes]) -> Iterator[Iterable[Any]]:
    """The lines that are complete."""
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, list) and len(found) >= 4:
            yield found
