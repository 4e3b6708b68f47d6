"""Counts a run's model calls in the last minute, across all workers."""

import json
import uuid
from collections.abc import Sequence
from typing import Any

from runner.journal.rate_limit import MINUTE, Limit
from runner.providers.redis import scripts
from runner.providers.redis.connection import Client


class RunPace:
    """Counts the calls of one run."""

    def __init__(self, client: Client, run_id: str) -> None:
        self._client, self._run_id = client, run_id

    def acquire(self, limits: Sequence[Limit]) -> float:
        """Take a turn, or hear for how many seconds there is none: one round trip."""
        about: dict[str, Any] = {
            "limits": json.dumps(list(limits), ensure_ascii=False),
            "minute": int(MINUTE * 1000),
            "nonce": uuid.uuid4().hex[:16],
        }
        return int(scripts.load("take_turn").at(self._client, self._run_id, **about)) / 1000
