"""The peer: plain Celery on the same Redis. No durability, no results; the least that tells that the work is done.

Its settings are what a careful user of Celery on Redis would choose: late acknowledgement, a prefetch of one, no result
backend, no events.
"""

import os

from celery import Celery
from redis import Redis

_socket = os.environ.get("BENCH_SOCKET", "")
app = Celery("peer", broker=f"redis+socket://{_socket}?virtual_host=1")
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    task_default_queue="peer",
)
_redis = Redis(unix_socket_path=_socket, db=1)


@app.task(name="peer.nothing")
def nothing() -> None:
    pass


@app.task(name="peer.last")
def last(key: str) -> None:
    """The end of a chain: says so."""
    _redis.lpush(key, 1)


@app.task(name="peer.count")
def count(key: str) -> None:
    """A task of its own: says that it was done."""
    _redis.incr(key)
