"""Starts a worker in another Python environment: ``python -m runner.tasks.environment``.

It builds the environment, or waits for who does, and becomes a worker of its interpreter: the same process, so that
its parent, signals and limits stay. Where it cannot be built, it becomes one that fails the runs that ask for it.
"""

import logging
import os
import sys
from pathlib import Path

from runner.bundles import environment, uv_build
from runner.bundles.uv_build import FAILED, OWN
from runner.core.errors import RunnerError
from runner.core.settings import WorkerSettings, cache_dir, setting, withhold
from runner.engine.code_cache import CodeCache
from runner.providers.redis.pipelined import Replicas
from runner.providers.redis.store import RedisStore


def main() -> None:
    """Replace this process by a worker."""
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s] %(message)s")
    settings, found = os.environ.copy(), Path(sys.executable)
    withhold()  # the build of a package runs what that brings
    settings.pop(FAILED, None)
    try:
        found = _built()
        settings["VIRTUAL_ENV"] = str(found.parent.parent)
        settings["PATH"] = os.pathsep.join((str(found.parent), settings.get("PATH", os.defpath)))
        settings.pop("PYTHONHOME", None)
    except RunnerError as error:
        logging.getLogger(__name__).error("%s", error)
        settings[FAILED] = str(error)
    os.execve(found, [str(found), "-P", "-m", "runner.tasks.worker"], settings)


def _built() -> Path:
    bundle, file = (os.environ[f"{OWN}_{name}"] for name in ("BUNDLE", "FILE"))
    limits = WorkerSettings()
    store = RedisStore(
        setting("RUNNER_REDIS_URL", ""),
        name="runner:builder",
        replicas=Replicas(limits.wait_replicas, limits.wait_timeout),
    )
    root = CodeCache(store, cache_dir()).root(bundle)
    wanted = environment.asked_for(root / file, root, bundle)
    assert wanted is not None  # who asked for this worker found it
    return uv_build.built(wanted, cache_dir())


if __name__ == "__main__":
    main()
