"""Workers in other Python environments: requests them from the parent process and sends jobs on to them.

A worker that claims a job of a run with an environment, and is another one, puts the job in the queue of that
environment and asks its parent for a worker there. Nothing of it is in the store: a job that is lost on the way was
never claimed, and comes again. See `runner.tasks.environment` for how such a worker begins.
"""

import json
import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from celery.signals import worker_ready
from celery.worker import state

from runner.bundles import environment, uv_build
from runner.bundles.uv_build import FAILED, OWN
from runner.core.jobs import Job, Needed
from runner.core.plan import THREAD, queue_for
from runner.core.settings import REQUESTS, builds_environments, default_queue, environment_idle, setting
from runner.engine.environments import Environments
from runner.providers.redis.keys import queue_of
from runner.tasks.app import in_slot, pools
from runner.tasks.broker import CeleryBroker

log = logging.getLogger(__name__)

REMEMBERED = 256  #: jobs that a process knows to have sent on
FAILED_IDLE = 5.0  #: seconds for which a build that failed is not tried again, after the last run that asked for it


class WorkerEnvironments(Environments):
    """Those of a worker's process."""

    def __init__(self) -> None:
        super().__init__()
        self._own, self.failure = os.environ.get(OWN, ""), os.environ.get(FAILED, "")
        self.accepted = f",{self._own}," if self._own else ""
        self._others = set[tuple[str, ...]]()  #: codes, by digest and bundle, that are done elsewhere
        self._sent = deque[Job](maxlen=REMEMBERED)  #: on to others
        self._broker = CeleryBroker()

    def takes(self, needed: Needed, root: Callable[[], Path], job: Job) -> bool:
        """Whether this interpreter has all that is asked for; if not, and uv is here, the job is sent on."""
        code = (needed.digest, needed.bundle, needed.module, needed.attr, needed.adapter)
        if code not in self._others:
            if self._own or self._has(needed, root()):
                return self.accept(needed)
            self._others.add(code)
        queue = f"{default_queue()}@{needed.digest}"
        sent = queue_of(in_slot(queue))
        self._send_on(job, sent if "process" in pools() else queue_for(sent, THREAD))
        _ask(needed, queue)
        return False

    def _send_on(self, job: Job, queue: str) -> None:
        """Put a job into that queue, unless it comes again and still waits there.

        A build takes minutes, in which the supervisor sends it once a second, and the next runs would wait behind all
        of these.
        """
        if job in self._sent and self._broker.depth(queue):
            return
        self._broker.send(job, queue)
        self._sent.append(job)

    @staticmethod
    def _has(needed: Needed, root: Path) -> bool:
        """Whether this interpreter will do."""
        wanted = environment.asked_for(root / needed.file, root, needed.bundle)
        why = environment.why_not(wanted) if wanted is not None else ""
        if wanted is None or not why:
            return True
        if not uv_build.uv():
            _warn(needed.digest, f"{wanted.named}: {why}")
            return True
        log.info(
            "tasks for environment %s go to a worker of that environment: %s: %s", needed.digest, wanted.named, why
        )
        return False


def here() -> Environments:
    """What a process of this worker has: whatever is asked for, where environments are off or no parent builds them."""
    built = builds_environments() and (setting(REQUESTS) or OWN in os.environ)
    return WorkerEnvironments() if built else Environments()


def _ask(needed: Needed, queue: str) -> None:
    """Have the parent keep a worker there. One write: it is whole, and so is what others write."""
    part = int(setting("RUNNER_PART", "0"))
    asked = {"part": part, "digest": needed.digest, "bundle": needed.bundle, "file": needed.file, "queue": queue}
    os.write(int(setting(REQUESTS, "")), json.dumps(asked).encode() + b"\n")


@lru_cache(maxsize=256)
def _warn(digest: str, why: str) -> None:
    log.warning(
        "environment %s cannot be built because uv is not installed here; its tasks run in this worker's environment "
        "(%s). Install uv, or turn environments off (RUNNER_ENVIRONMENTS)",
        digest,
        why,
    )  # fmt: skip


def end_when_idle() -> None:
    """In the main process of a worker in another environment: end it when it had nothing to do for long.

    Counted from when it takes jobs: a busy machine may take longer to start it than it would wait for a job, and would
    start and end it again and again, with its first job never done.
    """
    if OWN in os.environ:
        worker_ready.connect(_begin_to_watch)


def _begin_to_watch(**_: object) -> None:
    seconds = FAILED_IDLE if FAILED in os.environ else environment_idle()
    threading.Thread(target=_watch, args=(seconds,), name="idle", daemon=True).start()


def _watch(seconds: float) -> None:
    done, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        threading.Event().wait(seconds / 4)
        many = int(state.all_total_count[0])
        if many != done or state.reserved_requests:
            done, since = many, time.monotonic()
    log.info("nothing to do in this environment for %g s; exiting", seconds)
    os.kill(os.getpid(), signal.SIGTERM)
