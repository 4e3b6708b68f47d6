"""Versions of the store protocol: which versions of the runner may work on a run.

A run carries the number of the protocol that it was written by (none is 1). A worker reads its own and those before it.
A writer migrates a run to its own protocol (``lua/lib/migrate_run.lua``), so no worker meets what it cannot
read. Each protocol has queues of its own: a worker serves those that it reads, and a job for a newer one never reaches
it. Should one all the same, its claim is refused, and the job comes again a second later.

Tasks that mostly wait have queues beside those of the others: a worker takes many of them at a time.

The number goes up when a worker of before could not do a task on top of what is written now.
"""

import re
from collections.abc import Collection

from runner.core.jobs import queue_for
from runner.core.plan import THREAD
from runner.providers.redis.keys import HOME

PROTOCOL = 2
READS = tuple(range(1, PROTOCOL + 1))
FIRST = 1  #: of runs that carry no number

POOLS = ("process", THREAD)  #: what serves a queue

_QUEUE = re.compile(r"(?:runner:[pt]\d+:)?(?:\{p\d+\.\d+\})?", re.ASCII)


def queue_in(home: str, name: str) -> str:
    """How the queue called so is called in a store: what decides the slot of a Redis Cluster's stands before it."""
    return name if home == HOME else home.removeprefix("runner:") + name


def queue_of(name: str, protocol: int = PROTOCOL) -> str:
    """Where jobs for workers of a protocol wait, of those who serve the queue called so; see `queue_for`, too."""
    return name if protocol == FIRST else f"runner:p{protocol}:{name}"


def name_of(queue: str) -> str:
    """What a queue is called: the inverse of `queue_of` and `queue_in`."""
    return _QUEUE.sub("", queue, count=1)


def served(name: str, pools: Collection[str] = POOLS) -> list[str]:
    """The queues of all protocols that we read, for what these pools serve."""
    others = [queue_of(name, protocol) for protocol in READS]
    waiting = [queue_for(queue, THREAD) for queue in others if queue_for(queue, THREAD) != queue]
    return (others if "process" in pools else []) + (waiting if THREAD in pools else [])
