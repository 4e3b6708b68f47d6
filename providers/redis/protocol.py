"""Versions of the store protocol: which versions of the runner may work on a run.

A run carries the number of the protocol that it was written by (none is 1). A worker reads its own and those before it.
A writer migrates a run to its own protocol (``lua/lib/migrate_run.lua``), so no worker meets what it cannot
read. Each protocol has queues of its own: a worker serves those that it reads, and a job for a newer one never reaches
it. Should one all the same, its claim is refused, and the job comes again a second later.

Tasks that mostly wait have queues beside those of the others: a worker takes many of them at a time.

The number goes up when a worker of before could not do a task on top of what is written now.
"""

from runner.core.plan import THREAD

PROTOCOL = 2
READS = tuple(range(1, PROTOCOL + 1))
FIRST = 1  #: of runs that carry no number

POOLS = ("process", THREAD)  #: what serves a queue
