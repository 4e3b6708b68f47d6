"""Which claim each process of a worker performs, in memory that the worker's main process sees.

The store lists what a worker has claimed; only the worker knows what its processes are at. Where the two differ for
longer than an answer is on its way, the claim was dropped (its end was refused, or its answer was lost), or the store
was restored to an earlier state: no process performs it, and it is to be handed back.

The memory is shared by fork. Each process of the pool writes its own page, without a lock and without a system call.
"""

import hashlib
import mmap
import struct
from typing import NamedTuple

from runner.journal import acknowledged
from runner.journal.acknowledged import Acknowledged, Log, Logs

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
        return Page(bytearray(_PAGE.size), 0, process, acknowledged.nowhere())
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
