"""Removes what crashed workers left on this machine: when a worker starts, and once a minute."""

from runner.bundles import attempt_folders, relative_paths, unpacked
from runner.bundles.run_dir import homes, sweep
from runner.core.settings import cache_dir, cache_limit
from runner.journal import shared_memory
from runner.providers.redis.address import identity
from runner.providers.redis.connection import Client
from runner.providers.redis.runs import Runs
from runner.providers.redis.workers import Workers
from runner.tasks.periodic import PeriodicWork

PERIOD = 60.0  #: seconds between two rounds


class Housekeeping(PeriodicWork):
    """Runs in the main process of a worker. While the store is away, nothing is removed."""

    period = PERIOD

    def run_once(self, client: Client) -> None:
        """Remove leftover bundles and folders, then those of runs that the store no longer has."""
        unpacked.tidy(cache_dir() / "bundles", cache_limit())
        relative_paths.sweep(cache_dir())
        attempt_folders.sweep(cache_dir())
        tidy(client, self._url)


def tidy(client: Client, url: str) -> None:
    """Remove files of dead workers whose tasks were taken back, and folders of runs that the store no longer has."""
    workers = Workers(client).registered()
    store = identity(url)
    shared_memory.sweep(store, {str(worker.fields.get("out", "")) for worker in workers if worker.about})
    sweep(homes(store, cache_dir()), store, Runs(client).existing)
