"""The checkpoints at a location: a directory of JSON files, an SQLite file, or Redis."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from runner.client.checkpoints import state
from runner.client.checkpoints.model import Branch, Checkpoint, Details
from runner.client.checkpoints.tree import grouped
from runner.core.errors import NotFound, RunnerError, StoreUnreachable, UsageError
from runner.providers.base import CheckpointInfo
from runner.providers.detect import detect_provider

KINDS = {"json": "JSON files", "sqlite": "SQLite", "redis": "Redis"}


class StoredSource:
    """A location, read by its provider."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.where = _without_password(location)
        with readable_errors(self.where):
            self.provider = detect_provider(location)

    @property
    def title(self) -> str:
        """The location and what it is."""
        kind = self.provider.provider_type
        return f"{self.where} ({KINDS.get(kind, kind)})"

    def branches(self) -> Sequence[Branch]:
        """Return the branches; the origin of a fork is read from its checkpoints' parents."""
        with readable_errors(self.where):
            return grouped(map(_checkpoint, self.provider.checkpoints(self.location)))

    def details(self, checkpoint: Checkpoint) -> Details:
        """Return the details of a checkpoint."""
        return state.details(self.read(checkpoint), checkpoint)

    def read(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """The stored state. Raises `CheckpointTorn`, and `CheckpointNotFound` if it was pruned meanwhile."""
        with readable_errors(self.where):
            text = self.provider.from_checkpoint(checkpoint.location)
        return state.parse(text, checkpoint.id)

    def prune(self, keep: int, branch: str) -> int:
        """Keep the newest ``keep`` of a branch."""
        if branch not in {one.name for one in self.branches()}:
            raise NotFound(f"{self.title} has no branch {branch!r}")
        with readable_errors(self.where):
            return self.provider.prune(self.location, keep, branch=branch)

    def live(self) -> bool:
        """Return False: a provider does not say whether checkpoints are being added."""
        return False


@contextlib.contextmanager
def readable_errors(location: str) -> Iterator[None]:
    """Turn a provider's errors into one line."""
    try:
        yield
    except RunnerError:
        raise
    except (OSError, sqlite3.Error) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise StoreUnreachable(f"{location} cannot be read: {said}") from None
    except (ValueError, NotImplementedError) as error:
        raise UsageError(" ".join(str(error).split())) from None


def _without_password(location: str) -> str:
    if "://" not in location:
        return location
    from runner.providers.redis.locations import without_password

    return without_password(location)


def _checkpoint(info: CheckpointInfo) -> Checkpoint:
    return Checkpoint(
        id=info.id,
        branch=info.branch,
        parent=info.parent_id or "",
        created_at=int(info.created_at.timestamp() * 1000),
        size=info.size,
        complete=info.complete,
        location=info.location,
    )
