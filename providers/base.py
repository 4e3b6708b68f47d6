"""The base class of providers, which store checkpoints at a location and find them again.

A checkpoint is a text (a state as JSON), stored whole and never changed. It has an id, the id of its parent, and the
branch it stands on. A *line* is a checkpoint and its ancestors on its branch: two runs that write to one branch at one
location are two lines, and neither prunes the other (`BaseProvider.prune`, ``head``).
"""

import asyncio
import inspect
import logging
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import pydantic_core
from pydantic import BaseModel

from runner.core.errors import Exit, NotFound, RunnerError
from runner.events.lock import ForkSafeLock

logger = logging.getLogger(__name__)

REDIS_SCHEMES = (
    *("redis://", "rediss://", "valkey://", "valkeys://", "unix://"),
    *("redis+sentinel://", "rediss+sentinel://", "valkey+sentinel://", "valkeys+sentinel://"),
    *("redis+cluster://", "rediss+cluster://", "valkey+cluster://", "valkeys+cluster://"),
)
"""How the URL of a Redis begins."""

_ID = re.compile(r"(\d{8}T\d{6})_([0-9a-f]{8})")
MAX_BRANCH = 200  #: bytes of a branch's name: a file's may have 255
_SECOND = 1_000_000
_PATIENCE = 100  #: how often to list again when what was listed is gone


class CheckpointNotFound(NotFound, ValueError):
    """No such checkpoint, or none at all, at this location."""


class CheckpointTorn(RunnerError, ValueError):
    """What is stored of this checkpoint is not all of it."""

    exit_code = Exit.USAGE


class _Gone(Exception):
    """What was listed is there no more."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A stored checkpoint. ``location`` is what `BaseProvider.from_checkpoint` takes; ``size`` is in bytes."""

    id: str
    parent_id: str | None
    branch: str
    location: str
    created_at: datetime
    size: int
    complete: bool = True


class BaseProvider(BaseModel, ABC):
    """Where checkpoints are stored.

    To write one: six methods, of which the two async ones have a default here, and `checkpoints`, without which
    nothing can be listed. `runner.testing.ProviderConformance` tests it.
    """

    provider_type: str = "base"

    @abstractmethod
    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Store ``data`` durably, all or nothing. Returns the checkpoint's own location."""

    async def acheckpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """`checkpoint` without blocking the event loop."""
        return await asyncio.to_thread(self.checkpoint, data, location, parent_id=parent_id, branch=branch)

    @abstractmethod
    def prune(self, location: str, max_keep: int, *, branch: str = "main", head: str | None = None) -> int:
        """Remove the oldest checkpoints of a branch until ``max_keep`` are left; 0 leaves none.

        ``head`` is the newest one of the run that prunes: the lines of other runs in flight (`hold`) are left alone,
        and do not count. Other branches are never touched. Returns how many were removed.
        """

    def hold(self, location: str, instead_of: str | None = None) -> None:
        """A run of this process stands on this checkpoint, and no more on the one with the id ``instead_of``.

        Until `release`, or its process is gone, no other run's `prune` touches its line. Where
        `runner.providers.inflight.marks_ahead`, `checkpoint` has seen to that already, before others saw it.
        """

    def release(self, location: str) -> None:
        """The run that stands on this checkpoint is over."""

    @abstractmethod
    def extract_id(self, location: str) -> str:
        """The id in a checkpoint's own location."""

    @abstractmethod
    def from_checkpoint(self, location: str) -> str:
        """The data of a checkpoint. Raises `CheckpointNotFound`, and `CheckpointTorn` where that can be seen."""

    async def afrom_checkpoint(self, location: str) -> str:
        """`from_checkpoint` without blocking the event loop."""
        return await asyncio.to_thread(self.from_checkpoint, location)

    def checkpoints(self, location: str, branch: str | None = None) -> list[CheckpointInfo]:
        """What is stored at a location, oldest first; of one branch, or of all. Nothing there: an empty list."""
        raise NotImplementedError(f"{type(self).__name__} cannot list checkpoints: name one by its own location")

    def latest(self, location: str, branch: str | None = None) -> CheckpointInfo:
        """The newest checkpoint that is whole. One that is torn is passed over, and named in a warning.

        Raises `CheckpointNotFound`.
        """
        for _ in range(_PATIENCE):
            try:
                return self._newest_whole(location, branch)
            except _Gone:
                continue
        raise CheckpointNotFound(f"Checkpoint not found: those at {location} are pruned faster than they can be read")

    def _newest_whole(self, location: str, branch: str | None) -> CheckpointInfo:
        for info in self.newest_first(location, branch):
            try:
                if is_whole(self.from_checkpoint(info.location)) and info.complete:
                    return info
            except CheckpointNotFound:
                raise _Gone from None  # pruned since it was listed, so there is a newer one, or none
            except CheckpointTorn:
                pass
            logger.warning("Checkpoint %s is torn: skipping it, looking for an older one", info.location)
        where = location if branch is None else f"{location}, branch {branch}"
        raise CheckpointNotFound(f"Checkpoint not found: there is no complete one at {where}")

    def newest_first(self, location: str, branch: str | None = None) -> Iterator[CheckpointInfo]:
        """`checkpoints` from the other end; lazily, where looking at one costs something."""
        return reversed(self.checkpoints(location, branch))


def retain(provider: BaseProvider, location: str, max_keep: int, *, branch: str, head: str) -> int:
    """Prune after a write; a provider that knows no lines in flight prunes the branch as a whole."""
    if "head" in inspect.signature(provider.prune).parameters:
        return provider.prune(location, max_keep, branch=branch, head=head)
    return provider.prune(location, max_keep, branch=branch)


# -- ids

_lock = ForkSafeLock()  # reentrant: a signal's handler may write a checkpoint too
_last = 0
_ahead = 0


def make_id(parent_id: str | None = None) -> str:
    """A new id: ``YYYYMMDDTHHMMSS_`` and 8 hex digits, in UTC.

    Five digits are the microseconds, so that ids sort within a second, also where the clock stands still or goes back:
    an id comes after all others of this process, and after its parent's. The other three are random, for two processes
    in the same microsecond.
    """
    global _last, _ahead
    parent = micros(parent_id) or 0
    with _lock:
        now = _last = max(time.time_ns() // 1000, _last + 1)
        if parent >= now:
            # The parent's clock was ahead of ours. Checkpoints that are not its children keep ours.
            now = _ahead = max(parent, _ahead) + 1
    stamp = datetime.fromtimestamp(now // _SECOND, UTC)
    return f"{stamp:%Y%m%dT%H%M%S}_{now % _SECOND:05x}{secrets.randbits(12):03x}"


def micros(checkpoint_id: str | None) -> int | None:
    """When an id was made, in microseconds; None for an id of another form.

    An id made elsewhere may be random where ours tells the microsecond: it counts as the end of its second.
    """
    found = _ID.match(checkpoint_id or "")
    if not found:
        return None
    try:
        second = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(second.timestamp()) * _SECOND + min(int(found[2][:5], 16), _SECOND - 1)


def created_at(checkpoint_id: str, otherwise: float = 0.0) -> datetime:
    """When an id was made; ``otherwise``, in seconds, where it does not tell."""
    known = micros(checkpoint_id)
    return datetime.fromtimestamp(otherwise if known is None else known / _SECOND, UTC)


# -- what every provider checks


def torn(location: str) -> CheckpointTorn:
    """What to raise where a checkpoint is seen to be torn."""
    return CheckpointTorn(f"Checkpoint is torn: {location} is incomplete; restore from an older one")


def check_branch(branch: str) -> None:
    """Refuse a name that would lead out of the location, or be none, at every provider alike. Raises ValueError."""
    if not isinstance(branch, str) or not branch.isprintable() or len(branch.encode()) > MAX_BRANCH:
        named = repr(branch)[:60]
        raise ValueError(f"Not a branch name: {named}: name it like main, or fork/one, in at most {MAX_BRANCH} bytes")
    parts = branch.split("/")
    if branch.startswith("/") or ".." in parts:
        raise ValueError(f"Branch name escapes checkpoint directory: {branch!r}")
    if "" in parts or "." in parts:
        raise ValueError(f"Not a branch name: {branch!r}: name it like main, or fork/one")


def check_keep(max_keep: int) -> None:
    """Refuse a negative number. Raises ValueError."""
    if max_keep < 0:
        raise ValueError(f"max_keep must be at least 0, got {max_keep}")


def seems_whole(data: str) -> bool:
    """Whether a JSON object or list, of which the middle may be left out, ends as it began."""
    data = data.strip()
    return data != "" and {"{": "}", "[": "]"}.get(data[0], data[-1]) == data[-1]


def is_whole(data: str | bytes) -> bool:
    """Whether the data is one JSON value, to its end."""
    try:
        pydantic_core.from_json(data)
    except ValueError:
        return False
    return True


class Linked(Protocol):
    """What `excess` needs to know of a checkpoint."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def parent_id(self) -> str | None:
        """Its parent's."""


L = TypeVar("L", bound=Linked)


def excess(
    branch: Sequence[L],
    max_keep: int,
    head: str | None,
    complete: Callable[[L], bool] = lambda _: True,
    held: Collection[str] = (),
) -> list[L]:
    """Which checkpoints of a branch (oldest first) go when ``max_keep`` are kept, in the order in which to remove them.

    With ``head``, that one is the newest, whatever clocks said; the lines of those that are ``held`` besides are left
    alone. A torn one does not count as kept: it goes with what is older than the oldest kept.
    """
    line = list(branch)
    if head is not None:
        beside = _beside(branch, head, {other for other in held if other != head})
        line = [one for one in line if one.id not in beside and one.id != head]
        newest = [one for one in branch if one.id == head]
        if not newest:
            return []
        line += newest
    cut = len(line)
    kept = 0
    while kept < max_keep and cut:
        cut -= 1
        kept += complete(line[cut])
    return line[:cut] if kept == max_keep else []


def _beside(branch: Sequence[L], head: str, others: Collection[str]) -> set[str]:
    """The lines of other runs in flight: what they stand on, and what is written already and not yet stood on."""
    own = {one.id for one in _line(branch, head)}
    found = {one.id for other in others for one in _line(branch, other)}
    after = set(others)
    for one in branch:
        if one.parent_id in after and one.id not in own:
            after.add(one.id)
    return found | (after - own)


def _line(branch: Sequence[L], head: str) -> list[L]:
    """The checkpoint ``head`` and its ancestors on the branch, oldest first."""
    by_id = {one.id: one for one in branch}
    line: list[L] = []
    at = by_id.pop(head, None)
    while at is not None:
        line.append(at)
        at = by_id.pop(at.parent_id, None) if at.parent_id else None
    return line[::-1]
