"""The worker process itself: a fork of its parent, or ``python -m runner.tasks.worker``."""

import logging
import os
import socket
import sys
import uuid

from runner.bundles import relative_paths
from runner.core.settings import cache_dir, withhold
from runner.engine import adapters
from runner.providers.redis.connection import connect
from runner.providers.redis.keys import served
from runner.providers.redis.workers import Workers
from runner.tasks import environments, fork_safety, jobs, steps, stops
from runner.tasks.app import app, pools, state_url

POOLS = {"shared": "runner.tasks.shared_thread:TaskPool"}
"""The pools that are not Celery's."""


def main() -> None:
    """Run Celery's worker with our boot steps; settings come from the environment that the parent set."""
    worker_id = os.environ["RUNNER_WORKER_ID"] = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    withhold()
    steps.install(app)
    level = os.environ.get("RUNNER_LOGLEVEL", "INFO")
    if level != "DEBUG":
        # Lines for each job, or call of a model, cost as much as doing it; `runner events` and Flower tell the same.
        for name in ("celery.worker.strategy", "celery.app.trace", "httpx", "httpx2"):
            logging.getLogger(name).setLevel(logging.WARNING)
    pool = os.environ.get("RUNNER_POOL", "prefork")
    jobs.share()
    environments.end_when_idle()
    if pool != "prefork":
        jobs.process(on_main_thread=False).stops.install_pauses()
        relative_paths.enter(cache_dir())
        relative_paths.install()
    try:
        watched = Workers(connect(state_url())).watched()
    except Exception:  # Redis is away: Flower turns events on itself, a little later
        watched = False
    if pool == "prefork":
        _preload()
        fork_safety.install()
        stops.ignore_rechecks()
    code = 0
    try:
        # Not `app.worker_main`: Celery's command line imports Flower and more, a third of a worker's start.
        celery_worker = app.Worker(
            hostname=f"{worker_id}@{socket.gethostname()}",
            pool_cls=POOLS.get(pool, pool),
            concurrency=int(os.environ.get("RUNNER_CONCURRENCY", "2")),
            loglevel=getattr(logging, level),
            queues=served(app.conf.task_default_queue, pools()),
            task_events=watched,
            without_gossip=True,
            without_mingle=True,
        )
        celery_worker.start()
        code = celery_worker.exitcode or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        logging.getLogger(__name__).exception("the worker failed")
        code = 1
    steps.leave()
    # All is handed back. A thread that is stuck in a crew's code would keep the process from ending.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(os.environ.get("RUNNER_EXIT_CODE", code)))


def _preload() -> None:
    """Import what crews need before processes are forked: what `RUNNER_PRELOAD` names, else what most need.

    The names are those of adapters. The rest is imported with the first crew that needs it.
    """
    log, said = logging.getLogger(__name__), set()
    chosen = os.environ.get("RUNNER_PRELOAD")
    for name in adapters.preloaded() if chosen is None else chosen.split(","):
        try:
            adapters.preload(name.strip())
            said.add(adapters.untested(name.strip()))
        except Exception:
            log.exception("%s cannot be imported: crews that need it will fail", name)
    for line in said - {None}:
        log.warning(line)


if __name__ == "__main__":
    main()
