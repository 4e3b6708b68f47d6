"""What the processes of a worker note in shared memory: claims performed, writes acknowledged, calls sent."""

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from runner.core import processes
from runner.core.clock import SYSTEM, Clock
from runner.core.file_locks import unheld
from runner.core.ledger import STEP, AccountKey, Counters, line_of
from runner.journal.acknowledged_writes import Acknowledged, Log, Logs, nowhere

_DIGEST = 20  #: bytes of what stands for a task
_PAGE = struct.Struct(f"=48s{_DIGEST}sq")  # the process, as claims name it; what it is at; under which token
_IDLE = bytes(_DIGEST)

_memory: mmap.mmap | None = None
_logs: Logs | None = None
_thread_logs: Logs | None = None  #: of tasks that share a process
_places = 0


class Performed(NamedTuple):
    """What a process performs: the `digest` of the task's reference, and the token; 0 until the claim is granted."""

    task: bytes
    token: int


class Page:
    """The page on which one process states its task, before it asks for the claim: no claim is ever ahead of its page.

    ``log`` keeps the writes that the store acknowledged to the process.
    """

    def __init__(self, memory: "mmap.mmap | bytearray", start: int, process: str, log: Log) -> None:
        self.log = log
        self._memory, self._start = memory, start
        self._process = process.encode()
        self.over()

    def claiming(self, ref: str) -> None:
        """State that a claim of the task ``ref`` is about to be requested."""
        self._say(digest(ref), 0)

    def claimed(self, ref: str, token: int) -> None:
        """State that the claim was granted, with this fencing token."""
        self._say(digest(ref), token)
        self.log.claimed(ref, token)

    def over(self) -> None:
        """State that the process performs no task: its claim is committed, released or dropped."""
        self._say(_IDLE, 0)

    def _say(self, task: bytes, token: int) -> None:
        _PAGE.pack_into(self._memory, self._start, self._process, task, token)


def share(places: int, *, forked: bool = True, task_threads: int = 0) -> None:
    """In the main process, before its pool forks: have a page for each of so many processes, and for each thread.

    The threads are those of shared processes. Not ``forked``: all that have a place in the pool are in this process.
    """
    global _memory, _logs, _thread_logs, _places
    _memory, _places = mmap.mmap(-1, _PAGE.size * (places + task_threads)), places
    _logs = Logs(places, forked=forked)
    _thread_logs = Logs(task_threads) if task_threads else None


def page(place: int | None, process: str, *, in_shared_process: bool = False) -> Page:
    """The page of a process that has this place in its pool. Beyond what was shared, it is one that is never read.

    ``in_shared_process``: that of a thread of a shared process; ``place`` is then the number of the thread."""
    logs = _thread_logs if in_shared_process else _logs
    many = 0 if _memory is None else len(_memory) // _PAGE.size - _places if in_shared_process else _places
    if _memory is None or logs is None or place is None or not 0 <= place < many:
        return Page(bytearray(_PAGE.size), 0, process, nowhere())
    return Page(_memory, (place + in_shared_process * _places) * _PAGE.size, process, logs.log(place))


def forget(pid: int) -> None:
    """Clear the pages of a dead process, and of its threads: it performs nothing. Call it in the main process."""
    for at in range(0, len(_memory) if _memory is not None else 0, _PAGE.size):
        if _memory is not None and _PAGE.unpack_from(_memory, at)[0].rstrip(b"\0").partition(b"-")[0] == b"%d" % pid:
            _memory[at : at + _PAGE.size] = bytes(_PAGE.size)


def performed() -> dict[str, Performed]:
    """Return what each process performs, by its name; nothing is known of a process that is missing.

    A page that is read while it is written may be inconsistent, so read it twice before you act on it.
    """
    found = {}
    for process, task, token in _PAGE.iter_unpack(_memory[:] if _memory is not None else b""):
        if name := process.rstrip(b"\0"):
            found[name.decode("ascii", "replace")] = Performed(task, token)
    return found


def remembered() -> list[Acknowledged]:
    """Return the writes that the store acknowledged recently to these processes, and to their predecessors."""
    return [claim for logs in (_logs, _thread_logs) if logs is not None for claim in logs.claims()]


@lru_cache(maxsize=4096)  # of each task in flight, at each heartbeat
def digest(ref: str) -> bytes:
    """Return a hash of a task's reference, of the length that a page has for it."""
    return hashlib.sha1(ref.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()  # where FIPS holds, too


def performs(at: Performed | None, ref: str, token: int) -> bool:
    """Whether a process whose page says ``at`` performs this claim; True if nothing is known of the process."""
    return at is None or (at.task == digest(ref) and at.token in (0, token))


# -- the calls that have left, in a file that outlives the worker

CHILDREN = 1024  #: of a pool that have pages, two each; those beyond have none
ABANDONED = 3600.0  #: seconds after which the files of a dead worker of another store are removed
HALF = 1024  #: bytes of a text; of a longer one nothing is said

_PREFIX = "runner-out-"
_SLOT_HEAD = struct.Struct("=IIB")  # the child's pid, which one it is in its place, and which half stands
_LENGTH = struct.Struct("=H")
_SLOT = _SLOT_HEAD.size + 2 * HALF

_TOOLS_TOO = line_of(AccountKey("tool"), 0, 0)
"""Stands first where the tools that left are said as well: versions of before say the calls of models alone."""

_sent: mmap.mmap | None = None


class SentCalls:
    """The model calls and tool uses of one claim that left, or may have. Each change is passed to ``say``, if given."""

    def __init__(self, token: int, say: Callable[[str], None] | None) -> None:
        self._token, self._say = token, say
        self._out: dict[AccountKey, int] = {}
        self._unsure: dict[AccountKey, int] | None = None
        self._unnoted = 0
        self._texts: dict[int, str] = {}  # with so many steps that are not noted, and nothing else
        self.ahead = False  #: a note of one that may leave now was sent, and is not confirmed
        self.is_unsure = False  #: whether the store may not know of a step
        self.is_read = say is not None  #: whether who takes the task back may read it
        self._notify()

    def count(self, entry: AccountKey, many: int) -> None:
        """Add ``many`` calls of one kind that are out."""
        if entry.kind == "step":
            return
        out = self._out
        out[entry] = now = max(out.get(entry, 0) + many, 0)
        if self._unsure is None and not self.ahead and not self._unnoted and len(out) == 1:
            if self._say is not None:
                self._say(_text_of_one(self._token, entry, now))  # as it is with each call, twice
        else:
            self._notify()

    def confirmed(self) -> None:
        """State that the store has confirmed the notes that were sent ahead."""
        self.ahead = False
        self._notify()

    def unsure(self, begun: Counters) -> None:
        """State that the store may lack these steps: they count when the task is taken back, calls if they left."""
        self._unsure = {STEP: begun[STEP]} if begun[STEP] > 0 else {}
        self.is_unsure = True
        self._notify()

    def sure(self) -> None:
        """State that the store knows all steps."""
        if self._unsure is not None:
            self._unsure = None
            self.is_unsure = False
            self._notify()

    def unnoted(self, many: int) -> None:
        """So many of the author's own steps are under way, one of them on the note reserved for it; 0 for none."""
        self._unnoted = many
        text = self._texts.get(many)
        if text is None or self._out or self._unsure is not None:
            self._notify()
        elif self._say is not None:
            self._say(text)  # as it is with each step, twice

    def _notify(self) -> None:
        if self._say is not None:
            text = _TOOLS_TOO
            for entry, many in self._out.items():
                if many:
                    text += f", {line_of(entry, many, many if self.ahead else 0)}"
            for entry, many in (self._unsure or {STEP: self._unnoted}).items():
                if many:
                    text += f", {line_of(entry, many, 0)}"
            text = f"{self._token} [{text}]"
            if not self._out and self._unsure is None:
                self._texts[self._unnoted] = text
            self._say(text)


@lru_cache(maxsize=256)
def _text_of_one(token: int, entry: AccountKey, many: int) -> str:
    """Return the text of a claim with only calls of one kind out: ``many`` of them."""
    return f"{token} [{_TOOLS_TOO}{f', {line_of(entry, many, 0)}' if many else ''}]"


def share_sent(worker: str, store: str, places: int = CHILDREN) -> str:
    """In the main process, before its pool forks: have a file for all of it. Returns its path; "" if there is none.

    ``store`` says, without a password, from which store the worker's tasks are; ``places``: for so many processes.
    """
    global _sent
    path = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getpid()}-{worker[-6:]}-{_mark_of(store)}"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # the map and the children have it: until the last of them is dead
        size = 2 * min(places, CHILDREN) * _SLOT  # what is never written takes no room
        os.truncate(handle, size)
        _sent = mmap.mmap(handle, size)
    except (OSError, ValueError):
        remove(str(path))
        return ""
    finally:
        os.close(handle)
    return str(path)


def slot(place: int | None) -> Callable[[str], None] | None:
    """In a child: how it says which calls of its task are out. ``place`` is its own in the pool.

    There are two pages for each place: who comes after a dead child leaves what that one said.
    """
    if place is None or _sent is None or not 0 <= place < len(_sent) // (2 * _SLOT):
        return None
    memory, halves = _sent, ["", ""]
    pages = [2 * place * _SLOT, (2 * place + 1) * _SLOT]
    older, start = min((_SLOT_HEAD.unpack_from(memory, at)[1], at) for at in pages)
    memory[start : start + _SLOT] = bytes(_SLOT)
    _SLOT_HEAD.pack_into(memory, start, os.getpid(), older + 2, 0)
    standing = start + _SLOT_HEAD.size - 1

    def say(text: str) -> None:
        half = 1 - memory[standing]
        if text != halves[half]:  # as each step begins and ends, the two are there
            halves[half] = ""
            data = text.encode()
            data = data if len(data) <= HALF - _LENGTH.size else b""
            at = start + _SLOT_HEAD.size + half * HALF
            memory[at : at + _LENGTH.size + len(data)] = _LENGTH.pack(len(data)) + data
            halves[half] = text
        memory[standing] = half  # one byte: a kill in the midst leaves what stood before

    return say


def read_marks(path: str) -> Mapping[str, str]:
    """Return the last statement of each process of a worker, by pid; nothing is known of those that are missing."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError, struct.error):
        if not Path(path).name.startswith(_PREFIX) or Path(path).stat().st_uid != os.getuid():
            return {}
        data = Path(path).read_bytes()
        for start in range(0, len(data) - _SLOT + 1, _SLOT):
            pid, _, half = _SLOT_HEAD.unpack_from(data, start)
            if pid:
                at = start + _SLOT_HEAD.size + half * HALF
                (length,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size
                found[str(pid)] = data[at : at + length].decode("utf-8", "replace")
    return {pid: text for pid, text in found.items() if text}


def is_final(path: str) -> bool:
    """Whether the statements in the file are final: its processes are dead, not just frozen."""
    with contextlib.suppress(OSError):
        return Path(path).name.startswith(_PREFIX) and _abandoned(Path(path))
    return False


def remove(path: str) -> None:
    """Remove the file, which is no longer read."""
    if Path(path).name.startswith(_PREFIX):
        with contextlib.suppress(OSError):
            Path(path).unlink()


def sweep(store: str, needed: Collection[str], clock: Clock = SYSTEM) -> None:
    """Remove dead workers' files but for ``needed`` ones of this ``store``; another store's stay for an hour."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if str(path) in needed or not _abandoned(path):
                continue
            if path.name.endswith(_mark_of(store)) or clock.now() - path.stat().st_ctime > ABANDONED:
                path.unlink()


def _abandoned(path: Path) -> bool:
    """Whether all processes that write to the file are dead. It is read-only from the first time that they are."""
    pid = path.name.removeprefix(_PREFIX).partition("-")[0]
    if pid.isdigit() and processes.runs(pid):
        return False
    try:
        with unheld(path, os.O_NOFOLLOW) as handle:  # a worker elsewhere may share this folder, not our pids
            if os.fstat(handle).st_mode & 0o200:
                os.fchmod(handle, 0o400)
    except BlockingIOError:
        return False
    return True


def _mark_of(store: str) -> str:
    return hashlib.sha256(store.encode()).hexdigest()[:8]
