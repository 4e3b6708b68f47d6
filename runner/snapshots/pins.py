"""Retention of a kickoff's checkpoints: protects those that it depends on, and prunes the others when it ends."""

import contextlib
import logging
from dataclasses import dataclass, field

from runner.core.errors import one_line
from runner.providers.base import BaseProvider, retain
from runner.providers.config import CheckpointConfig

logger = logging.getLogger("runner.snapshots")

BranchLocation = tuple[str, str, str]
"""Provider, location and branch."""


@dataclass(frozen=True, slots=True)
class _Held:
    provider: BaseProvider
    location: str
    checkpoint_id: str
    own_location: str
    most: int | None


@dataclass(slots=True)
class Pins:
    """The newest checkpoint of one kickoff at each location and branch that it writes to."""

    _held: dict[BranchLocation, _Held] = field(default_factory=dict)

    def move(self, config: CheckpointConfig, branch: str, checkpoint_id: str, own_location: str) -> None:
        """Protect a newly written checkpoint instead of the one before it."""
        place = (type(config.provider).__name__, config.location, branch)
        before = self._held.get(place)
        self._held[place] = _Held(config.provider, config.location, checkpoint_id, own_location, config.max_checkpoints)
        with contextlib.suppress(Exception):  # others may prune what is older than their newest
            config.provider.hold(own_location, before.checkpoint_id if before else None)

    def end(self) -> None:
        """Release all checkpoints and prune: the kickoff has ended, so only ``max_checkpoints`` of ended ones stay."""
        while self._held:
            (_, _, branch), one = self._held.popitem()
            try:
                one.provider.release(one.own_location)
                if one.most is not None:
                    retain(one.provider, one.location, one.most, branch=branch, head=one.checkpoint_id)
            except Exception as error:
                logger.warning("old checkpoints in %s could not be pruned: %s", one.location, one_line(error)[:300])
