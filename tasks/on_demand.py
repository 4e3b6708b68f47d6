"""Starts a worker's processes when its fleet first has a task for one.

They take a third of an idle worker's memory, and a fleet whose tasks all wait for models has no use for them. Once one
worker of a fleet has had to start them, the others do so too: each is to take over at once what another one leaves.
"""

import json
import os

from runner.core.settings import REQUESTS, setting
from runner.providers.redis.connection import Client
from runner.providers.redis.workers import Workers
from runner.tasks.capacity import STARTS_PROCESSES
from runner.tasks.periodic import PeriodicWork

LOOK = 2.0  #: seconds between two looks for what does not wake us: another worker's processes, jobs of older runs
KNOWN = 7 * 86400  #: seconds for which a fleet is known to use processes


class Processes(PeriodicWork):
    """In the worker whose tasks share a thread: asks their parent for the one with processes, once it is needed."""

    period = 0.5

    def __init__(self, url: str, queue: str) -> None:
        super().__init__(url)
        self._queue = queue

    def run_once(self, client: Client) -> None:
        """Wait until it is needed."""
        workers = Workers(client)
        _ask(now=False)
        while not workers.needs_processes(self._queue, LOOK):
            _ask(now=False)
        _ask(now=True)
        workers.use_processes(KNOWN)  # where it refuses that for now, it is asked again, as is the parent
        self.is_done = True


def start(url: str, queue: str) -> None:
    """Begin to wait, if this worker is one whose parent has another to start."""
    if setting(STARTS_PROCESSES):
        Processes(url, queue).start()


def _ask(*, now: bool) -> None:
    """Have the parent start it now, or when this is not said again for long. One write, so that it arrives whole."""
    request = {"part": int(setting("RUNNER_PART", "0")), "now": now}
    os.write(int(setting(REQUESTS, "")), json.dumps(request).encode() + b"\n")
