"""What crashes leave behind on a worker's machine is taken away: when a worker starts, and once a minute."""

import logging
import threading

from runner.bundles import relative_paths, task_files, unpacked
from runner.bundles.run_dir import homes, sweep
from runner.core.settings import cache_dir, cache_limit
from runner.journal import task_marks
from runner.providers.redis.address import identity
from runner.providers.redis.connection import Client, connect
from runner.providers.redis.patience import TRANSIENT_ERRORS
from runner.providers.redis.runs import Runs
from runner.providers.redis.workers import Workers

log = logging.getLogger(__name__)

PERIOD = 60.0  #: seconds between two rounds


class Housekeeping(threading.Thread):
    """Goes round in the main process of a worker, beside all else. While the store is away nothing is taken."""

    def __init__(self, url: str) -> None:
        super().__init__(name="housekeeping", daemon=True)
        self._url = url

    def run(self) -> None:
        """Until the process ends."""
        while True:
            try:
                unpacked.tidy(cache_dir() / "bundles", cache_limit())
                relative_paths.sweep(cache_dir())
                with connect(self._url, name="runner:housekeeping", timeout=5.0) as client:
                    tidy(client, self._url)
            except TRANSIENT_ERRORS:
                pass
            except Exception:
                log.exception("leftovers of crashes could not be removed; retrying in %g s", PERIOD)
            threading.Event().wait(PERIOD)


def tidy(client: Client, url: str) -> None:
    """One round: files of dead workers that were handed back, and folders of runs that the store has no longer."""
    workers = Workers(client).registered()
    store = identity(url)
    task_marks.sweep(store, {str(worker.fields.get("out", "")) for worker in workers if worker.about})
    task_files.sweep(task_files.workdirs(store, cache_dir()), {worker.id for worker in workers})
    sweep(homes(store, cache_dir()), store, Runs(client).existing)
