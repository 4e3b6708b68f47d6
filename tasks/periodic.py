"""Periodic work of a worker's main process that uses the store."""

import logging
import threading
from abc import ABC, abstractmethod

from runner.core.backoff import jittered
from runner.providers.redis.connection import Client, connect
from runner.providers.redis.outages import TRANSIENT_ERRORS

log = logging.getLogger(__name__)


class PeriodicWork(threading.Thread, ABC):
    """Runs now, and about every ``period`` seconds, until it ``is_done`` or its process ends. No failure ends it."""

    period: float
    is_done = False

    def __init__(self, url: str) -> None:
        super().__init__(name=type(self).__name__.lower(), daemon=True)
        self._url = url

    def run(self) -> None:
        """Run until then."""
        while not self.is_done:
            try:
                with connect(self._url, name=f"runner:{self.name}", timeout=5.0) as client:
                    self.run_once(client)
            except TRANSIENT_ERRORS:
                pass
            except Exception:
                log.exception("%s failed; retrying in %g s", self.name, self.period)
            threading.Event().wait(jittered(self.period))

    @abstractmethod
    def run_once(self, client: Client) -> None:
        """Run once. While the store is away, its first command raises."""
