"""A worker for as long as it is needed: with the embedded server, whoever waits for a run makes sure that one is there.

``workers-QUEUE.lock`` in the state directory is held, shared, by every worker's parent from its first moment. Who can
have it alone knows that there is no worker, and starts one that ends by itself when no run is left.
"""

import contextlib
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def _lock_path(state_dir: Path, queue: str) -> Path:
    return state_dir / f"workers-{re.sub(r'[^A-Za-z0-9_.-]', '_', queue)}.lock"


@contextlib.contextmanager
def counted(state_dir: Path, queue: str) -> Iterator[None]:
    """Be counted as a worker of this queue."""
    with _lock_path(state_dir, queue).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def ensure(state_dir: Path, queue: str) -> "subprocess.Popen[bytes] | None":
    """Start a worker unless there is one. Returns what it started."""
    with _lock_path(state_dir, queue).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        with (state_dir / "worker.log").open("ab") as log:
            if log.tell() > 2**20:
                log.truncate(0)
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "runner", "worker", "--until-idle", "--queue", queue],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "RUNNER_STATE_DIR": str(state_dir)},
            )
        # It takes the lock over before it does anything else; until then, ours keeps others from starting one more.
        fcntl.flock(lock, fcntl.LOCK_UN)
        _await_lock(lock, process)
    return process


def last_words(state_dir: Path) -> str:
    """The last error in the log of a worker that was started here."""
    lines = (state_dir / "worker.log").read_text("utf-8", "replace").splitlines()
    said = [line.strip() for line in lines if line.strip() and not line.startswith("runner worker:")]
    return said[-1] if said else "it said nothing"


def _await_lock(lock: IO[str], process: "subprocess.Popen[bytes]") -> None:
    """Until the new worker is counted, or is dead."""
    import time

    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        fcntl.flock(lock, fcntl.LOCK_UN)
        time.sleep(0.02)
