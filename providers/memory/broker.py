"""Queues in the memory of one process, for runs whose store does not deliver their jobs itself."""

from collections import defaultdict, deque
from collections.abc import Sequence

from runner.core.jobs import Job


class MemoryBroker:
    """A `runner.engine.ports.Broker` that loses nothing unless told to: tests change its ``queues``."""

    def __init__(self) -> None:
        self.queues: defaultdict[str, deque[Job]] = defaultdict(deque)
        self.lost: list[tuple[str, Sequence[Job], str]] = []

    def send(self, job: Job, queue: str) -> None:
        """Append a job to a queue."""
        self.queues[queue].append(job)

    def depth(self, queue: str) -> int | None:
        """Return how many jobs wait in a queue."""
        return len(self.queues[queue])

    def report_lost(self, worker: str, jobs: Sequence[Job], reason: str) -> None:
        """Keep the report in ``lost``."""
        self.lost.append((worker, jobs, reason))
