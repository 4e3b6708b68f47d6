"""Which calls the processes of a worker have sent, in a file that outlives them.

A call is noted in the store before it goes out, or a kill could hide it. A process that is killed between the two
leaves a note of a call that was never sent. The worker that reclaims its task on the same machine sees this here, and
counts it as what it is: not made. Who cannot look counts it as in doubt. While the store refuses, or is away, a process
says here also which steps it may not know of.

The file is mapped into the memory of the worker's main process and of its pool's children; each has a page of it.
"""

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from runner.core.clock import SYSTEM, Clock
from runner.core.held_files import unheld
from runner.core.ledger import AccountKey, Counters

CHILDREN = 128  #: of a pool that have pages, two each; those beyond have none
ABANDONED = 3600.0  #: seconds after which the files of a dead worker of another store are removed
HALF = 1024  #: bytes of a text; of a longer one nothing is said

_PREFIX = "runner-out-"
_HEAD = struct.Struct("=IIB")  # the child's pid, which one it is in its place, and which half stands
_LENGTH = struct.Struct("=H")
_SLOT = _HEAD.size + 2 * HALF
_SIZE = 2 * CHILDREN * _SLOT  # what is never written takes no room

_memory: mmap.mmap | None = None


class SentCalls:
    """The calls of models of one claim that have left the process, or may have. ``say`` is told, if there is one."""

    def __init__(self, token: int, say: Callable[[str], None] | None) -> None:
        self._token, self._say, self._out = token, say, Counters()
        self._unsure: Counters | None = None
        self._tell()

    def count(self, entry: AccountKey, many: int) -> None:
        """So many more of a kind are out."""
        if entry.kind == "model":
            self._out[entry] = max(self._out[entry] + many, 0)
            self._tell()

    def unsure(self, begun: Counters) -> None:
        """The store may not know of these steps. Who takes the task back counts them: calls of models by what left."""
        self._unsure = Counters({entry: many for entry, many in begun.items() if entry.kind != "model"})
        self._tell()

    def sure(self) -> None:
        """It knows."""
        if self._unsure is not None:
            self._unsure = None
            self._tell()

    def _tell(self) -> None:
        if self._say is None:
            return
        text = ""
        if self._out or self._unsure:
            every = Counters(self._out)
            every.update(self._unsure or {})
            text = every.text()
        self._say(f"{self._token} {text or '[]'}")


def share(worker: str, store: str) -> str:
    """In the main process, before its pool forks: have a file for all of it. Returns its path; "" if there is none.

    ``store`` says, without a password, from which store the worker's tasks are.
    """
    global _memory
    path = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getpid()}-{worker[-6:]}-{_mark(store)}"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # the map and the children have it: until the last of them is dead
        os.truncate(handle, _SIZE)
        _memory = mmap.mmap(handle, _SIZE)
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
    if place is None or not 0 <= place < CHILDREN or _memory is None:
        return None
    memory, half = _memory, 0
    pages = [2 * place * _SLOT, (2 * place + 1) * _SLOT]
    older, start = min((_HEAD.unpack_from(memory, at)[1], at) for at in pages)
    memory[start : start + _SLOT] = bytes(_SLOT)
    _HEAD.pack_into(memory, start, os.getpid(), older + 2, half)

    def say(text: str) -> None:
        nonlocal half
        data = text.encode()
        data = data if len(data) <= HALF - _LENGTH.size else b""
        half = 1 - half
        at = start + _HEAD.size + half * HALF
        memory[at : at + _LENGTH.size + len(data)] = _LENGTH.pack(len(data)) + data
        memory[start + _HEAD.size - 1] = half  # one byte: a kill in the midst leaves what stood before

    return say


def read_marks(path: str) -> Mapping[str, str]:
    """What the processes of a worker said last, by pid; of those that are missing nothing is known."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError, struct.error):
        if not Path(path).name.startswith(_PREFIX) or Path(path).stat().st_uid != os.getuid():
            return {}
        data = Path(path).read_bytes()
        for start in range(0, len(data) - _SLOT + 1, _SLOT):
            pid, _, half = _HEAD.unpack_from(data, start)
            if pid:
                at = start + _HEAD.size + half * HALF
                (length,) = _LENGTH.unpack_from(data, at)
                at += _LENGTH.size
                found[str(pid)] = data[at : at + length].decode("utf-8", "replace")
    return {pid: text for pid, text in found.items() if text}


def is_final(path: str) -> bool:
    """Whether nothing is added to what they said: they are dead, and have not only frozen."""
    with contextlib.suppress(OSError):
        return Path(path).name.startswith(_PREFIX) and _abandoned(Path(path))
    return False


def remove(path: str) -> None:
    """Close it: it is not read any more."""
    if Path(path).name.startswith(_PREFIX):
        with contextlib.suppress(OSError):
            Path(path).unlink()


def sweep(store: str, needed: Collection[str], clock: Clock = SYSTEM) -> None:
    """Take away what dead workers left behind, but for the files ``needed`` by who hands the tasks of ``store`` back.

    Those of another store's workers stay for an hour: who looks for them is not known here.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if str(path) in needed or not _abandoned(path):
                continue
            if path.name.endswith(_mark(store)) or clock.now() - path.stat().st_ctime > ABANDONED:
                path.unlink()


def _abandoned(path: Path) -> bool:
    """Whether all processes that write there are dead. From the first look on that finds them so, it is read-only."""
    pid = path.name.removeprefix(_PREFIX).partition("-")[0]
    if pid.isdigit() and _runs(pid):
        return False
    try:
        with unheld(path, os.O_NOFOLLOW) as handle:  # a worker elsewhere may share this folder, not our pids
            if os.fstat(handle).st_mode & 0o200:
                os.fchmod(handle, 0o400)
    except BlockingIOError:
        return False
    return True


def _runs(pid: str) -> bool:
    """Whether there is such a process, and not only a zombie's exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _mark(store: str) -> str:
    return hashlib.sha256(store.encode()).hexdigest()[:8]
