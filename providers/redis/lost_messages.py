"""Detects jobs whose messages were lost although their queue is not empty; `redeliver` only looks at empty queues.

A message can be lost with a worker that had taken it and not yet claimed its job. In a queue that never runs empty,
only a look at what is in it tells.
"""

from collections.abc import Iterator

from runner.core.jobs import Job
from runner.core.plan import queue_for
from runner.providers.redis import keys
from runner.providers.redis.connection import Client
from runner.providers.redis.envelope import read_message

LONGEST = 20_000  #: of a longer queue nothing is said: looking at it would cost more than waiting for it


def missing(client: Client, home: str) -> set[Job]:
    """The unclaimed jobs whose message is not in its queue: lost, or just being taken."""
    references = client.zrange(keys.key("queued_key", home=home), 0, LONGEST)
    places = list(_places(client, references))
    pipe = client.pipeline(transaction=False)
    for run_id, branch, task in places:
        pipe.hmget(keys.run_key(run_id, home), "queue", "direct", "envelope")
        pipe.hmget(keys.key("task_key", branch_key=keys.branch_key(run_id, branch, home), name=task), "attempt", "pool")
    answers = pipe.execute()
    by_queue: dict[str, set[Job]] = {}
    for place, (queue, direct, envelope), (attempt, pool) in zip(places, answers[::2], answers[1::2], strict=True):
        if queue and (direct or envelope) and attempt:
            by_queue.setdefault(queue_for(queue, pool), set()).add(Job(*place, int(attempt)))
    found: set[Job] = set()
    for queue, jobs in by_queue.items():
        if 0 < client.llen(queue) <= LONGEST:
            found |= jobs - {_job(message) for message in client.lrange(queue, 0, -1)}
    return found


def _places(client: Client, references: list[str]) -> Iterator[tuple[str, str, str]]:
    """Run, branch and task of each. For those that are digests, what is in flight in their run is looked at."""
    found: dict[str, dict[str, tuple[str, str, str]]] = {}
    for reference in references:
        run_id, branch, task = keys.unref(reference)
        if branch != keys.DIGEST:
            yield run_id, branch, task
            continue
        if run_id not in found:
            found[run_id] = {keys.queued_ref(*place): place for place in _open(client, run_id)}
        if reference in found[run_id]:
            yield found[run_id][reference]


def _open(client: Client, run_id: str) -> Iterator[tuple[str, str, str]]:
    home = keys.home_of(client)
    for branch in client.smembers(keys.key("branches_key", run=keys.run_key(run_id, home))):
        for task in client.smembers(keys.key("open_key", branch_key=keys.branch_key(run_id, branch, home))):
            yield run_id, branch, task


def _job(message: str) -> Job | None:
    """The job of a message; None if it is no message of ours."""
    try:
        given = read_message(message).arguments
    except ValueError:
        return None
    return Job(given["run"], given["branch"], given["task"], given["attempt"])
