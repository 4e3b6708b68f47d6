"""One server with the offline model for all processes of a user on this machine: it is too large to be loaded twice.

It holds ``server.lock``; each user shares ``users.lock``. Once that is unused for a while, it exits.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import IO

from runner.core import file_locks, settings
from runner.core.errors import ModelError
from runner.modelserver import ModelServer
from runner.modelserver.stubs import offline, weights

GRACE = 10.0  #: seconds that the server outlives its last user
PATIENCE = 120.0  #: seconds that it may take to come up

_mine: dict[int, IO[str]] = {}  #: the lock that this process holds as long as it lives, by its pid


def folder() -> Path:
    """Return the folder through which the processes find each other."""
    found = settings.cache_dir() / "offline"
    found.mkdir(parents=True, exist_ok=True, mode=0o700)
    return found


def join() -> str:
    """The root address of the server, which is started if there is none. Raises `MissingDependency`, `ModelError`."""
    offline.make_ready(lambda _: None)
    if os.getpid() not in _mine:
        users = (folder() / "users.lock").open("a")
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for a server that is just ending
        _mine[os.getpid()] = users
    end = time.monotonic() + PATIENCE
    started: subprocess.Popen[bytes] | None = None
    while time.monotonic() < end:
        root = _answering()
        if root:
            return root
        if not file_locks.is_held(folder() / "server.lock") and (started is None or started.poll() is not None):
            if started is not None and started.returncode:
                break
            started = _start()
        time.sleep(0.05)
    raise ModelError(f"the offline model does not start: see {folder() / 'server.log'}")


def _answering() -> str | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        root = str(json.loads((folder() / "server.json").read_text("utf-8"))["root"])
        with urllib.request.urlopen(f"{root}/health", timeout=5) as said:
            return root if said.status == 200 else None
    return None


def _start() -> "subprocess.Popen[bytes]":
    with (folder() / "server.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "runner.modelserver.stubs.sharing"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True, env=os.environ.copy(),
        )  # fmt: skip


def serve() -> int:
    """Be the server until it is unused. Returns the exit code; 0 too if another one is it."""
    here = folder()
    with (here / "server.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        server = ModelServer(offline.Engine(weights.fetch()), models=(weights.path().stem,), keep=0)
        with server:
            new = here / "server.json.new"
            new.write_text(json.dumps({"root": server.root, "pid": os.getpid()}))
            new.replace(here / "server.json")
            # Whoever waits for this lock finds no server any more when it gets it.
            with (here / "users.lock").open("a") as users:
                _until_alone(users)
                (here / "server.json").unlink(missing_ok=True)
    return 0


def _until_alone(users: IO[str]) -> None:
    """Wait until it was unused for a while. Then no process can begin to use it before this one has closed the lock."""
    alone = 0.0
    while True:
        time.sleep(0.5)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alone = 0.0
            continue
        alone += 0.5
        if alone > GRACE:
            return
        fcntl.flock(users, fcntl.LOCK_UN)


if __name__ == "__main__":
    sys.exit(serve())
