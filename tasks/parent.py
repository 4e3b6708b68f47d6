"""The parent of a worker: restarts it when it dies, forwards signals to it, and never leaves it running alone."""

import contextlib
import gc
import importlib
import json
import logging
import math
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from runner.core.backoff import Backoff
from runner.core.processes import end_with_parent
from runner.core.settings import REQUESTS, WorkerSettings, from_outside
from runner.tasks import waiting_parent
from runner.tasks.capacity import ON_DEMAND, STARTS_PROCESSES
from runner.tasks.waiting_parent import ENDING, STATE

QUICK = 10.0
"""A worker that lived shorter than this many seconds is restarted with a pause. Once all have lived for so long, what
they were forked from is let go of."""
LONGEST_PAUSE = 10.0
GAVE_UP = 70  #: exit code of a worker that does not start
MARGIN = 5.0  #: seconds beyond the drain timeout that a worker gets to end
SILENT = 60.0  #: seconds after which one on demand is started, if who is to say whether it is needed says nothing
LOOK = 0.05  #: seconds between looks for one that ended, where the kernel does not say
WITH_THE_FIRST = (
    "celery.apps.worker", "celery.app.control", "celery.app.events", "celery.app.log", "celery.app.routes",
    "celery.backends.base", "celery.worker.autoscale", "celery.worker.components", "celery.worker.strategy",
    "celery.worker.consumer.delayed_delivery", "billiard.popen_fork", "billiard.sharedctypes", "encodings.idna",
)  # fmt: skip
"""What Celery's worker would import when it needs it, each for itself."""
_AGAIN = (
    f"import json, os, sys; sys.path[:] = json.loads(os.environ[{STATE!r}])['path']; "
    "from runner.tasks.parent import main; sys.exit(main())"
)
"""What continues after `runner.tasks.waiting_parent`, with this process's import path: a launcher may have set it."""
_BUILDER = ("-P", "-m", "runner.tasks.environment")  # -P: what lies in the working directory is not ours


def run(
    environments: Sequence[Mapping[str, str]],
    *,
    until: Callable[[], bool] | None = None,
    poll: float = 1.0,
    tries: int | None = None,
    before: Mapping[str, Any] | None = None,
) -> int:
    """Keep a worker running in each of these environments until asked to end, or until ``until()`` says so.

    Returns the exit code. After ``tries`` deaths of one in a row, each soon after the start, it gives up.
    ``before`` is what this process knew before it only waited: see `runner.tasks.waiting_parent`.
    """
    asked: list[int] = []
    # A worker is always told by SIGTERM; the first pipe says what we were told by. By the other one it requests other
    # workers: see `runner.tasks.environments` and `runner.tasks.on_demand`
    pipes: list[int] = before["pipes"] if before else [*os.pipe(), *os.pipe()]
    asked_reader, asked_writer, wanted, want = pipes
    for number in pipes:
        os.set_inheritable(number, False)
    for reader in (asked_reader, wanted):
        os.set_blocking(reader, False)
    parts = [
        {**from_outside(), **one, "RUNNER_ASKED_FD": str(asked_reader), REQUESTS: str(want), "RUNNER_PART": str(number)}
        for number, one in enumerate(environments)
    ]
    workers = [
        _Kept(part, (asked_reader, want), on_demand=ON_DEMAND in one)
        for part, one in zip(parts, environments, strict=True)
    ]

    def keep_elsewhere(request: Mapping[str, Any]) -> None:
        settings = _in_environment(parts, request)
        name = f"{settings['RUNNER_PART']} {settings['RUNNER_ENVIRONMENT']}"
        if not any(one.name == name for one in workers):
            workers.append(_Kept(settings, (asked_reader,), name, request=request))

    if before:
        for known in before["workers"][len(workers) :]:
            keep_elsewhere(known["request"])
        for worker, known in zip(workers, before["workers"], strict=True):
            worker.resume(known)

    def ask(signum: int, _frame: FrameType | None) -> None:
        asked.append(signum)
        os.write(asked_writer, bytes([signum]) * len(workers))
        for one in workers:  # once is enough; whoever asks a third time means it
            one.send(signal.SIGTERM if len(asked) < 3 else signal.SIGKILL)

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, the kernel does not keep how a child ended
    waiting_parent.listen(ask)
    if not asked:
        _import()
    requests: list[dict[str, Any]] = list(before["requests"]) if before else []
    may_only_wait = until is None
    while not asked:
        for one in workers:
            one.start()
        if asked:  # it came between two children
            break
        if not requests:
            _wait(workers, poll, wanted)
        if asked:
            break
        for request in (*requests, *_requests(wanted)):
            if "digest" in request:
                keep_elsewhere(request)
            else:
                workers[request["part"] - 1].is_needed(in_seconds=0.0 if request["now"] else SILENT)
        requests.clear()
        pending = any(one.due < SILENT / 2 for one in workers)  # one on demand is not, while it is not needed
        ended = [one for one in workers if one.has_ended()]
        if until is not None and not pending and all(one.code == 0 for one in ended) and until():
            _end(workers, poll)
            if asked or (all(one.code == 0 for one in workers) and until()):
                return 0
            continue  # there is something to do again
        for one in ended:
            if one.name and one.code == 0:  # it had nothing to do
                workers.remove(one)
            elif not one.again(None if one.name else tries):
                print(
                    f"runner worker: the worker process ended {tries} times shortly after starting; giving up",
                    file=sys.stderr,
                    flush=True,
                )
                _end(workers, poll)
                return GAVE_UP
        if may_only_wait and all(one.is_settled for one in workers):
            may_only_wait = _only_wait(environments, pipes, workers, asked)
    _end(workers, poll)
    return 0


def _only_wait(
    environments: Sequence[Mapping[str, str]], pipes: Sequence[int], workers: "Sequence[_Kept]", asked: Sequence[int]
) -> bool:
    """Become the program that only waits. Returns whether to try again if that fails."""
    if not all(one.pidfd for one in workers if one.runs):
        return True
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as `multiprocessing` does
    python = [sys.executable, *options, "-P"]  # -P: what lies in the working directory is not ours
    command = sys.argv[1:]
    state = {
        "environments": [dict(one) for one in environments],
        "pipes": pipes,
        "workers": [one.known() for one in workers],
        "requests": [],
        "path": sys.path,
        "program": [*python, "-c", _AGAIN, *command],
        "silent": SILENT,
        "ends_within": WorkerSettings().drain_timeout + MARGIN,
    }
    error = waiting_parent.become([*python, "-s", "-S", waiting_parent.__file__, *command], state, asked)
    if error is not None:
        print(f"runner worker: it keeps what it imported: {error}", file=sys.stderr, flush=True)
    return error is None


class _Kept:
    """One worker that is kept running, ``on_demand`` once it is needed. One with a ``name`` has another environment."""

    def __init__(
        self,
        environment: Mapping[str, str],
        passed: Sequence[int],
        name: str = "",
        *,
        on_demand: bool = False,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        self._environment, self._passed, self.name, self._request = environment, passed, name, request
        self._pid = 0
        self._started, self._due = 0.0, time.monotonic() + SILENT if on_demand else 0.0
        self._backoff, self._quick_deaths = Backoff(0.2, LONGEST_PAUSE), 0
        self._was_asked = False
        self.pidfd: int | None = None
        self.code = 0

    @property
    def due(self) -> float:
        """Return the seconds until it is to be started; infinite while it runs."""
        return math.inf if self._pid else self._due - time.monotonic()

    @property
    def is_settled(self) -> bool:
        """Whether it is expected to run for long, or not to be started soon."""
        return time.monotonic() - self._started > QUICK if self._pid else self.due > QUICK

    def known(self) -> dict[str, Any]:
        """Return what `resume` needs."""
        return {"pid": self._pid, "started": self._started, "due": self._due, "request": self._request}

    def resume(self, known: Mapping[str, Any]) -> None:
        """Take it up again: it is still a child of this process."""
        self._started, self._due = known["started"], known["due"]
        if known["pid"]:
            self._runs_as(known["pid"])

    def _runs_as(self, pid: int) -> None:
        self._pid = pid
        with contextlib.suppress(OSError, AttributeError):  # no such call (macOS)
            self.pidfd = os.pidfd_open(pid)

    def is_needed(self, in_seconds: float) -> None:
        """Have it started then, if it never was: at once, or unless who says so says it again before."""
        if not self._started and self.due > 0:
            self._due = time.monotonic() + in_seconds

    def start(self) -> None:
        """Start it, if it does not run and its delay is over."""
        if self.due > 0:
            return
        self._started, self._was_asked = time.monotonic(), False
        sys.stdout.flush()
        sys.stderr.flush()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # a fork that is told meanwhile is no parent
        self._runs_as(os.fork() or _become(self._environment, self._passed, builder=bool(self.name)))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def send(self, signum: int) -> None:
        """Send it a signal, if it runs."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):  # it is just being waited for
                os.kill(self._pid, signum)
            self._was_asked = True

    def ask(self) -> None:
        """Ask it to end, once."""
        if not self._was_asked:
            self.send(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Whether it has ended since the last check. Its exit code is in ``code``."""
        ended, status = os.waitpid(self._pid, os.WNOHANG) if self._pid else (0, 0)
        if not ended:
            return False
        self._pid, code = 0, os.waitstatus_to_exitcode(status)
        self.code = 0 if self._was_asked and code == -signal.SIGTERM else code  # it was asked before it had begun
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        return True

    def again(self, tries: int | None) -> bool:
        """Schedule a restart after a delay; returns False if it died too often."""
        lived = time.monotonic() - self._started
        self._quick_deaths = 0 if lived > QUICK or self.code < 0 else self._quick_deaths + 1
        if tries is not None and self._quick_deaths >= tries:
            return False
        if lived > QUICK:
            self._backoff.reset()
        print(
            f"runner worker: the worker process exited with status {self.code}; starting another",
            file=sys.stderr,
            flush=True,
        )
        self._due = time.monotonic() + self._backoff.pause()
        return True

    @property
    def runs(self) -> bool:
        """Whether it was started, and is not known to have ended."""
        return bool(self._pid)


def _import() -> None:
    """Import what all workers need, so that they share its memory and start at once."""
    _leave_working_directory()
    from runner.crews import adapter  # noqa: F401 - for what it imports
    from runner.providers.redis import scripts
    from runner.tasks import shared_thread, worker  # noqa: F401 - for what they import

    for name in WITH_THE_FIRST:
        importlib.import_module(name)
    scripts.read()
    gc.collect()
    gc.freeze()  # a collector that walked through it in a worker would give that a copy of it all


def _leave_working_directory() -> None:
    """Remove the working directory from the import path, like ``python -P``."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
    implied = {"", str(Path.cwd()), str(Path(sys.argv[0]).resolve().parent)}
    if sys.path[0] in implied and sys.path[0] != named:
        del sys.path[0]


def _become(environment: Mapping[str, str], passed: Sequence[int], *, builder: bool) -> NoReturn:
    """In a fork: become a worker, or one that builds its environment first. Never returns."""
    try:
        end_with_parent()
        for signum in signal.valid_signals():
            if callable(signal.getsignal(signum)):
                signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        if builder:
            for one in passed:
                os.set_inheritable(one, True)
            os.execve(sys.executable, [sys.executable, *_BUILDER], environment)
        _close_all_but({0, 1, 2, *passed})
        os.environ.clear()
        os.environ.update(environment)
        from runner.tasks import worker

        sys.argv, sys.modules["__main__"] = [str(worker.__file__)], worker
        logging.root.handlers.clear()
        worker.main()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _close_all_but(kept: set[int]) -> None:
    """Release the parent's files, since its locks are its own. Their numbers stay in use: objects refer to them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(one.name) for one in Path("/dev/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):
                os.dup2(nothing, number, inheritable=False)


def _requests(wanted: int) -> list[dict[str, Any]]:
    """Return the requests since the last call, each once."""
    with contextlib.suppress(BlockingIOError):
        return [json.loads(one) for one in dict.fromkeys(os.read(wanted, 1 << 16).decode().splitlines())]
    return []


def _in_environment(parts: Sequence[Mapping[str, str]], asked: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a worker in another environment, for the part that requested it."""
    part = parts[asked["part"]]
    own = {
        "RUNNER_QUEUE": asked["queue"],
        "RUNNER_ENVIRONMENT": asked["digest"],
        "RUNNER_ENVIRONMENT_BUNDLE": asked["bundle"],
        "RUNNER_ENVIRONMENT_FILE": asked["file"],
    }
    return {name: value for name, value in part.items() if name not in (REQUESTS, ON_DEMAND, STARTS_PROCESSES)} | own


def _wait(workers: Sequence[_Kept], seconds: float, wanted: int | None = None) -> None:
    """Wait until one of them ends or is to be started, or there is a request, for at most so many seconds."""
    left = min(seconds, *(max(one.due, 0) for one in workers))
    running = [one for one in workers if one.runs]
    if any(one.pidfd is None for one in running):
        time.sleep(min(left, LOOK))
        return
    watched = select.poll()
    if wanted is not None:
        watched.register(wanted, select.POLLIN)
    for one in running:
        watched.register(one.pidfd or 0, select.POLLIN)
    watched.poll(left * 1000)


def _end(workers: Sequence[_Kept], poll: float) -> None:
    """Ask them to end, and wait; kill those that still run long after the drain timeout."""
    end = time.monotonic() + WorkerSettings().drain_timeout + MARGIN
    for one in workers:
        one.ask()
    while any(one.runs for one in workers):
        for one in workers:
            if not one.has_ended() and time.monotonic() > end:
                one.send(signal.SIGKILL)
        running = [one for one in workers if one.runs]
        if running:
            _wait(running, poll)


def main() -> int:
    """Continue after `runner.tasks.waiting_parent`."""
    before = json.loads(os.environ.pop(STATE))
    return run(before["environments"], before=before)
