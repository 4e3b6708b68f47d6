"""Imports the clients of models that the fleet uses before a task of this worker needs them.

When a worker dies, another one takes over all its agents. If that has not imported the clients of their models, each of
them would wait for the import.
"""

import gc
import logging

from runner.llm.clients import preloading
from runner.llm.recording.loading import watch_imports
from runner.providers.redis.connection import Client
from runner.providers.redis.workers import Workers
from runner.tasks.periodic import PeriodicWork

log = logging.getLogger(__name__)

PERIOD = 10.0  #: seconds between two looks
KNOWN = 7 * 86400  #: seconds for which a client is known to be used


class Preloading(PeriodicWork):
    """Publishes which clients this process has imported, and imports those of other workers."""

    period = PERIOD

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._tried: set[str] = set()
        watch_imports()  # a task may begin while its thread imports a client

    def run_once(self, client: Client) -> None:
        """Read what other workers have imported."""
        self.look(Workers(client))

    def look(self, workers: Workers) -> None:
        """Check once. A client that cannot be imported is not tried again: the task that needs it gets the error."""
        here = set(preloading.imported())
        self._tried |= here
        for name in sorted(workers.clients(here, KNOWN) - self._tried):
            self._tried.add(name)
            try:
                preloading.preload(name)
                gc.collect()
                gc.freeze()  # it stays: the first collection while a task begins would take as long as the task
            except Exception as error:
                log.info("%s is used by other workers, but cannot be imported here: %s", name, error)
