"""What the processes of a worker note in shared memory: the claim each performs, and what the store acknowledged to it.

The worker's main process reads it. The memory is shared by fork; each process of the pool writes its own part of it,
without a lock and without a system call, and what a dead one noted is still there.

The store lists what a worker has claimed; only the worker knows what its processes are at. Where the two differ for
longer than an answer is on its way, the claim was dropped (its end was refused, or its answer was lost), or the store
was restored to an earlier state: no process performs it, and it is to be handed back.

A store may lose its newest writes: its machine lost power before the last second was on disk, a replica that lagged was
promoted, a backup was put back. What it had acknowledged and does not know any more is done again; that this happened,
and what it costs, only those can tell to whom it was acknowledged. They remember it in a ring, of which the oldest
lines go when it is full.
"""

import hashlib
import json
import mmap
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

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


_PAGE = struct.Struct("=48s20sq")  # the process, as claims name it; what it is at; under which token
_IDLE = bytes(20)

_memory: mmap.mmap | None = None
_logs: Logs | None = None


class Performed(NamedTuple):
    """What a process is at: a task, as `digest` of its reference, and the token; 0 while the claim is asked for."""

    task: bytes
    token: int


class Page:
    """Where one process says what it is at. Said before the claim is asked for, so no claim is ever ahead of it.

    ``log`` is for what the store acknowledges to it.
    """

    def __init__(self, memory: "mmap.mmap | bytearray", start: int, process: str, log: Log) -> None:
        self.log = log
        self._memory, self._start = memory, start
        self._process = process.encode()
        self._task = _IDLE
        self.over()

    def claiming(self, ref: str) -> None:
        """A claim is about to be asked for."""
        self._task = digest(ref)
        self._say(0)

    def claimed(self, ref: str, token: int) -> None:
        """It was given."""
        self._say(token)
        self.log.claimed(ref, token)

    def over(self) -> None:
        """The process is at nothing: what it had claimed is committed, handed back, or dropped."""
        self._task = _IDLE
        self._say(0)

    def _say(self, token: int) -> None:
        _PAGE.pack_into(self._memory, self._start, self._process, self._task, token)


def share(places: int) -> None:
    """In the main process, before its pool forks: have a page for each of so many processes."""
    global _memory, _logs
    _memory = mmap.mmap(-1, _PAGE.size * places)
    _logs = Logs(places)


def page(place: int | None, process: str) -> Page:
    """The page of a process that has this place in its pool. Beyond what was shared, it is one that is never read."""
    if _memory is None or _logs is None or place is None or not 0 <= place < len(_memory) // _PAGE.size:
        return Page(bytearray(_PAGE.size), 0, process, nowhere())
    return Page(_memory, place * _PAGE.size, process, _logs.log(place))


def performed() -> dict[str, Performed]:
    """What each process is at, by name; of one that is missing nothing is known.

    A page that is read while it is written may be nonsense. Who acts on it looks twice.
    """
    found = {}
    for process, task, token in _PAGE.iter_unpack(_memory[:] if _memory is not None else b""):
        if name := process.rstrip(b"\0"):
            found[name.decode("ascii", "replace")] = Performed(task, token)
    return found


def remembered() -> list[Acknowledged]:
    """What the store has lately acknowledged to these processes, and to those that had their places before."""
    return _logs.claims() if _logs is not None else []


def digest(ref: str) -> bytes:
    """A task's reference, in the length that pages have for it."""
    return hashlib.sha1(ref.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()


def performs(at: Performed | None, ref: str, token: int) -> bool:
    """Whether a process that is ``at`` this performs this claim; yes where nothing is known of it."""
    return at is None or (at.task == digest(ref) and at.token in (0, token))
