"""The protocol of the store: which versions of the runner may work on a run.

A run carries the number of the protocol that it was written by (none is 1). A worker reads its own and those before it.
Who writes to a run takes it along to its own protocol (``lua/lib/take_along.lua``), so no worker meets what it cannot
read. Each protocol has queues of its own: a worker serves those that it reads, and a job for a newer one never reaches
it. Should one all the same, its claim is refused, and the job comes again a second later.

The number goes up when a worker of before could not do a task on top of what is written now.
"""

import re

PROTOCOL = 2
READS = tuple(range(1, PROTOCOL + 1))
FIRST = 1  #: of runs that carry no number

_QUEUE = re.compile(r"runner:p\d+:", re.ASCII)


def queue_of(name: str, protocol: int = PROTOCOL) -> str:
    """Where jobs for workers of a protocol wait, of those who serve the queue called so."""
    return name if protocol == FIRST else f"runner:p{protocol}:{name}"


def name_of(queue: str) -> str:
    """What a queue is called: the inverse of `queue_of`."""
    return _QUEUE.sub("", queue, count=1)


def served(name: str) -> list[str]:
    """The queues of all protocols that we read."""
    return [queue_of(name, protocol) for protocol in READS]
