"""The base class of providers, which store checkpoints at a location and find them again.

A checkpoint is a text (a state as JSON), stored whole and never changed. It has an id, the id of its parent, and a
branch. A *line* is a checkpoint and its ancestors on its branch: two runs that write to one branch at one location have
two lines, and neither prunes the other's (`BaseProvider.prune`, ``head``).
"""

import asyncio
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

from runner.core.annotations import signature_of
from runner.core.errors import Exit, NotFound, RunnerError
from runner.core.fork_safe_lock import ForkSafeLock

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
    """The checkpoint does not exist, or the location has none."""


class CheckpointTorn(RunnerError, ValueError):
    """The stored data of a checkpoint is incomplete."""

    exit_code = Exit.USAGE


class _Gone(Exception):
    """A listed checkpoint has been removed."""


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
    """Stores checkpoints.

    A subclass implements `checkpoint`, `from_checkpoint`, `extract_id` and `prune`; `checkpoints`, without which
    nothing can be listed; and `hold` and `release`, which protect the checkpoints of other runs in flight. The async
    methods have defaults. `runner.testing.ProviderConformance` tests it.
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

        ``head`` is the newest checkpoint of the pruning run: the lines of other runs in flight (`hold`) are left alone
        and do not count. Other branches are never touched. Returns how many were removed.
        """

    def hold(self, location: str, instead_of: str | None = None) -> None:
        """Protect this checkpoint for a run of this process, and no longer the one with the id ``instead_of``.

        Until `release`, or until the process is gone, no other run's `prune` removes its line. While
        `runner.providers.inflight.marks_ahead` is true, `checkpoint` protects what it stores before others can see it.
        """

    def release(self, location: str) -> None:
        """The run that depends on this checkpoint has ended."""

    @abstractmethod
    def extract_id(self, location: str) -> str:
        """Return the id in a checkpoint's own location."""

    @abstractmethod
    def from_checkpoint(self, location: str) -> str:
        """Return the data of a checkpoint, exactly as stored.

        Raises `CheckpointNotFound`, and `CheckpointTorn` if the provider can detect that.
        """

    async def afrom_checkpoint(self, location: str) -> str:
        """`from_checkpoint` without blocking the event loop."""
        return await asyncio.to_thread(self.from_checkpoint, location)

    def checkpoints(self, location: str, branch: str | None = None) -> list[CheckpointInfo]:
        """List the checkpoints at a location, oldest first, of one branch or of all; empty if there are none."""
        raise NotImplementedError(f"{type(self).__name__} cannot list checkpoints: name one by its own location")

    def latest(self, location: str, branch: str | None = None) -> CheckpointInfo:
        """Return the newest complete checkpoint. Torn ones are skipped, with a warning that names them.

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
        """Iterate over `checkpoints` in reverse, lazily if reading one is expensive."""
        return reversed(self.checkpoints(location, branch))


def retain(provider: BaseProvider, location: str, max_keep: int, *, branch: str, head: str) -> int:
    """Prune after a write. With a provider whose `prune` has no ``head``, prune the branch as a whole."""
    if "head" in signature_of(provider.prune).parameters:
        return provider.prune(location, max_keep, branch=branch, head=head)
    return provider.prune(location, max_keep, branch=branch)


# -- ids

_lock = ForkSafeLock()  # reentrant: a signal's handler may write a checkpoint too
_last = 0
_ahead = 0


def make_id(parent_id: str | None = None) -> str:
    """Return a new id: ``YYYYMMDDTHHMMSS_`` and 8 hex digits, in UTC.

    Five digits are the microseconds, so that ids sort within a second, even if the clock stands still or goes back: an
    id sorts after all others of this process, and after its parent's. The other three digits are random, for two
    processes in the same microsecond.
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
    """Return when an id was made, in microseconds; None for an id of another form.

    Another writer's id may have random digits in place of the microseconds, so it counts as the end of its second.
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
    """Return when an id was made; ``otherwise``, in seconds, if the id does not say."""
    known = micros(checkpoint_id)
    return datetime.fromtimestamp(otherwise if known is None else known / _SECOND, UTC)


# -- what every provider checks


def torn(location: str) -> CheckpointTorn:
    """Return the exception for a torn checkpoint."""
    return CheckpointTorn(f"Checkpoint is torn: {location} is incomplete; restore from an older one")


def check_branch(branch: str) -> None:
    """Refuse a branch name that is empty or leads out of the location, for every provider. Raises ValueError."""
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
    """Whether a JSON object or list, possibly without its middle, ends with the bracket that closes it."""
    data = data.strip()
    return data != "" and {"{": "}", "[": "]"}.get(data[0], data[-1]) == data[-1]


def is_whole(data: str | bytes) -> bool:
    """Whether the data is exactly one JSON value."""
    try:
        pydantic_core.from_json(data)
    except ValueError:
        return False
    return True


class Linked(Protocol):
    """The attributes of a checkpoint that `excess` needs."""

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
    """Return the checkpoints of a branch (oldest first) to remove, in this order, so that ``max_keep`` are kept."""
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
    """The lines of other runs in flight: what they depend on, and what they have written but not yet protected."""
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
