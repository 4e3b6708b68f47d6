"""A temporary worker: with the embedded server, a client that waits for a run makes sure that a worker exists.

``workers-QUEUE.lock`` in the state directory is held, shared, by every worker's parent; one started here holds it
before it runs, by inheritance. A client that gets it exclusively knows that no worker runs, and starts one that exits
when no run is left. Of a queue that is another environment's, the file has the Python that first asked for a worker.
"""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.core.settings import embedded_queue


def _lock_path(state_dir: Path, queue: str) -> Path:
    return state_dir / f"workers-{re.sub(r'[^A-Za-z0-9_.-]', '_', queue)}.lock"


@contextlib.contextmanager
def counted(state_dir: Path, queue: str) -> Iterator[None]:
    """Be counted as a worker of this queue."""
    with _lock_path(state_dir, queue).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def ensure(state_dir: Path, queue: str, pool: str = "auto") -> "subprocess.Popen[bytes] | None":
    """Start a worker with this pool unless there is one. Returns what it started."""
    with _lock_path(state_dir, queue).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        fcntl.flock(lock, fcntl.LOCK_SH)
        python = _python(_lock_path(state_dir, queue), queue)
        with (state_dir / "worker.log").open("ab") as log:
            if log.tell() > 2**20:
                log.truncate(0)
            return subprocess.Popen(
                [python, "-P", "-m", "runner", "worker", "--until-idle", "--pool", pool, "--queue", queue],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock.fileno(),),  # closed with the last process that has it: nothing waits for the start
                env={**os.environ, "RUNNER_STATE_DIR": str(state_dir)},
            )


def _python(lock: Path, queue: str) -> str:
    """The interpreter of a queue's workers: that of the environment whose queue it is, as long as it is there."""
    recorded = lock.read_text("utf-8")
    if os.access(recorded, os.X_OK) and queue != embedded_queue():
        return recorded
    if recorded != sys.executable and queue == embedded_queue():
        lock.write_text(sys.executable, "utf-8")
    return sys.executable


def last_words(state_dir: Path) -> str:
    """The last error in the log of a worker that was started here."""
    lines = (state_dir / "worker.log").read_text("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if line.strip() and not line.startswith("runner worker:")]
    return said[-1] if said else "it printed nothing"
