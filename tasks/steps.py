"""Boot steps that this package adds to Celery's worker: the heartbeat, the supervisor, and the drain at SIGTERM."""

import logging
import os
import platform
import signal
import socket
import threading
from collections.abc import Iterable
from typing import Any

from celery import bootsteps
from celery.signals import after_setup_logger, after_setup_task_logger, worker_process_init, worker_shutting_down
from celery.utils.log import ColorFormatter
from celery.worker import state

from runner.core.redaction import redact_handlers
from runner.core.settings import WorkerSettings, setting, worker_labels
from runner.providers.redis.connection import connect
from runner.providers.redis.keys import name_of
from runner.providers.redis.protocol import READS
from runner.tasks import app as celery_side
from runner.tasks import jobs, on_demand, pool, stops, transport
from runner.tasks.broker import CeleryBroker
from runner.tasks.heartbeat import Heartbeat
from runner.tasks.housekeeping import Housekeeping
from runner.tasks.line_handler import LineHandler
from runner.tasks.preloading import Preloading
from runner.tasks.supervisor import SUFFIX, Supervisor

log = logging.getLogger(__name__)

RESTARTED = 75  #: the exit code of a worker that restarts itself
MARGIN = 5.0  #: seconds beyond the drain timeout that it gets for that


class HeartbeatStep(bootsteps.StartStopStep):
    """Starts with the pool and ends after it; survives the broker's reconnects."""

    requires = ("celery.worker.components:Pool",)

    heartbeat: Heartbeat | None = None  #: of the class, for there is one worker in a process

    def start(self, parent: Any) -> None:
        """Register before the first message is consumed."""
        stops.leave_hangups_to_parent()  # Celery has set its own handler by now
        settings = WorkerSettings()
        threads = not hasattr(parent.pool, "_pool") or not hasattr(parent.pool._pool, "_pool")
        url = celery_side.state_url()
        queue = name_of(celery_side.app.conf.task_default_queue)
        heartbeat = HeartbeatStep.heartbeat = Heartbeat(
            url,
            setting("RUNNER_WORKER_ID", ""),
            settings,
            about={
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "pool": os.environ.get("RUNNER_POOL", "prefork"),
                "concurrency": parent.concurrency,
                "queue": queue,
                "reads": READS,
                "serves": celery_side.pools(),
                "lease": settings.lease,
                "python": platform.python_version(),
                "labels": worker_labels(),
                "out": jobs.OUT,
            },
            children=_no_children if threads else lambda: _pool_pids(parent.pool),
            stop_here=_stop_here if threads else None,
            restart=_restart,
            free_slot=_free_slot,
            slots=(lambda: parent.concurrency) if threads else lambda: _processes(parent.pool),
            queue=queue if celery_side.own_broker() else None,
            taken=lambda: int(state.all_total_count[0]),
        )
        heartbeat.start()
        Housekeeping(url).start()
        if threads:
            Preloading(url).start()
            on_demand.start(url, queue)
        worker_shutting_down.connect(self._shutting_down)
        if not heartbeat.registered.wait(30):
            log.warning("the store does not answer yet; no task is claimed until it does")
        elif (prepare := getattr(parent.pool, "prepare", None)) is not None:
            prepare()

    # No stop(): boot steps end before the pool does, and until then the tasks in it live by this lease. See `leave`.

    def _shutting_down(self, sig: str, **_: Any) -> None:
        # In a signal handler: only say it. The thread does it.
        if self.heartbeat is not None:
            self.heartbeat.drain(_asked_by(signal.Signals[sig]))


class SupervisorStep(bootsteps.StartStopStep):
    """A supervisor in every worker; one of them leads."""

    requires = (HeartbeatStep,)

    def __init__(self, parent: Any, **_: Any) -> None:  # noqa: ARG002 - a boot step's signature
        self.supervisor: Supervisor | None = None
        self.thread: threading.Thread | None = None

    def start(self, parent: Any) -> None:  # noqa: ARG002 - Celery's own names
        """Start it in a thread."""
        self.supervisor = make_supervisor(setting("RUNNER_WORKER_ID", "") + SUFFIX)
        self.thread = threading.Thread(target=self.supervisor.run, name="supervisor", daemon=True)
        self.thread.start()

    def stop(self, parent: Any) -> None:  # noqa: ARG002 - Celery's own names
        """Stop it; another worker's supervisor takes over."""
        if self.supervisor is not None and self.thread is not None:
            self.supervisor.stop()
            self.thread.join(5)


def make_supervisor(name: str) -> Supervisor:
    """Create a supervisor with this process's settings."""
    url = celery_side.state_url()
    return Supervisor(lambda: connect(url, name=f"runner:{name}", single=True), name, WorkerSettings(), CeleryBroker())


@after_setup_logger.connect
@after_setup_task_logger.connect
def _mask_secrets(logger: logging.Logger, **_: Any) -> None:
    """Make each handler redact what it writes, and write lines cheaply: there are two lines for each task."""
    for number, handler in enumerate(logger.handlers):
        usual: Any = handler.formatter
        if type(usual) is ColorFormatter and not usual.use_color:
            handler.setFormatter(logging.Formatter(usual._fmt))
        if type(handler) is logging.StreamHandler:
            logger.handlers[number] = LineHandler(handler)
    redact_handlers(logger)


@after_setup_logger.connect
def _leave_libraries_alone(logger: logging.Logger, loglevel: int, **_: Any) -> None:
    """Loggers of other packages behave as when Python runs the file: some libraries log where programs print."""
    if logging.DEBUG < loglevel < logging.WARNING:
        logger.setLevel(logging.WARNING)
        for name in ("celery", "kombu", "runner"):
            logging.getLogger(name).setLevel(loglevel)


def install(app: Any) -> None:
    """Add both steps to the app's worker."""
    # Sent from handlers of signals, and a second may come inside of the first (our parent's, and the group's): with
    # Celery's plain lock the process would wait for itself.
    worker_shutting_down.lock = threading.RLock()
    pool.install()
    transport.install()
    app.steps["worker"].add(HeartbeatStep)
    app.steps["worker"].add(SupervisorStep)


@worker_process_init.connect
def _child_starts(**_: Any) -> None:
    if HeartbeatStep.heartbeat is not None:
        HeartbeatStep.heartbeat.child_starts()


def leave() -> None:
    """The worker is down: remove it from the store."""
    if HeartbeatStep.heartbeat is not None:
        HeartbeatStep.heartbeat.leave()


def _pool_pids(pool: Any) -> list[int]:
    """The pids of the pool's children; none once it is being torn down."""
    inner = getattr(pool, "_pool", None)
    return [child.pid for child in list(getattr(inner, "_pool", None) or ()) if child.pid]


def _processes(pool: Any) -> int:
    """The number of processes that the pool would have now if none were free."""
    return getattr(getattr(pool, "_pool", None), "_processes", 0)


def _no_children() -> Iterable[int]:
    return ()


def _stop_here(what: str) -> None:
    stops = jobs.process().stops
    stops.recheck() if what == "recheck" else stops.drain(what)


def _asked_by(got: signal.Signals) -> signal.Signals:
    """The signal that our parent received, which it forwards as SIGTERM; else the one that this process received."""
    try:
        asked = os.read(int(setting("RUNNER_ASKED_FD", "")), 1)
    except (ValueError, OSError):
        asked = b""
    return signal.Signals(asked[0]) if asked else got


def _free_slot(pid: int) -> None:
    """Free the slot of a dead child, whose job Celery would count as running for seconds."""
    # Not of the set of weak references itself: it may change meanwhile.
    for request in [found for ref in list(state.active_requests.data) if (found := ref()) is not None]:
        if request.worker_pid == pid:
            state.active_requests.discard(request)
            state.reserved_requests.discard(request)


def _restart(why: str) -> None:
    log.error("restarting this worker: %s", why)
    os.environ["RUNNER_EXIT_CODE"] = str(RESTARTED)
    # What stopped consuming may stand still and hear no signal, and its parent, which did not ask, does not kill it.
    end = threading.Timer(WorkerSettings().drain_timeout + MARGIN, os._exit, (RESTARTED,))
    end.daemon = True
    end.start()
    os.kill(os.getpid(), signal.SIGTERM)
