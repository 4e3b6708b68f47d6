"""Joins the embedded server of a state directory, and starts it if necessary."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from runner.client.embedded import keeper
from runner.client.embedded.find import WAYS_OUT, find_binary
from runner.client.embedded.paths import StateDir
from runner.core.errors import StoreUnreachable
from runner.core.settings import appendfsync, redis_grace

#: What the keeper and the server get of the environment: neither needs the user's keys, and both outlive the caller.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

WAIT = 30.0  #: seconds for which a server that starts, or another one that stops, is waited for
FULL = 2.0  #: seconds to wait for a server whose disk has no room for what it writes as it starts
LEAST = 4096  #: bytes on a disk that is not full


class Membership:
    """This process's share in the server: while one is open anywhere, the server runs.

    A forked child shares its parent's; a program started from here does not, and joins for itself.
    """

    def __init__(self, place: StateDir, users: int) -> None:
        self._place = place
        self._users: int | None = users
        self.url = place.url
        self.broker_url = place.broker_url

    def rejoin(self) -> None:
        """Make sure that the server runs, after a connection error; takes under a millisecond if it does."""
        if self._users is None:
            raise ValueError("this membership is closed")
        deadline = time.monotonic() + WAIT
        with _explained(self._place):
            self._place.create()
            if not self._counted():
                fresh = _count(self._place, deadline)
                os.close(self._users)
                self._users = fresh
            _ensure(self._place, deadline)

    def close(self) -> None:
        """Leave. The last one to leave lets the server go, after the grace time."""
        if self._users is not None:
            os.close(self._users)  # not unlocked: a forked child that shares it still counts
            self._users = None

    def _counted(self) -> bool:
        """Whether the lock we hold is still the one in the directory, which may have been removed meanwhile."""
        assert self._users is not None
        try:
            return os.path.samestat(os.fstat(self._users), (self._place.state / "users.lock").stat())
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(state_dir: Path) -> Membership:
    """Use the server of this state directory, started now if it does not run."""
    place = StateDir.of(state_dir)
    deadline = time.monotonic() + WAIT
    with _explained(place):
        place.create()
        users = _count(place, deadline)
        try:
            _ensure(place, deadline)
        except BaseException:
            os.close(users)
            raise
        return Membership(place, users)


def running(state_dir: Path) -> str | None:
    """Return the URL of the server that runs for this state directory; starts nothing, and does not keep it running."""
    place = StateDir.of(state_dir)
    deadline = time.monotonic() + 5.0
    while place.trusts_socket_folder():
        answer = keeper.ask(place.socket, b"PING")
        if answer.startswith(b"+PONG"):
            return place.url
        if not answer.startswith(b"-LOADING") or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return None


def _count(place: StateDir, deadline: float) -> int:
    """Take a share of users.lock. A keeper that is stopping holds it until its server is down."""
    users = keeper.open_lock(place.state / "users.lock")
    while not keeper.try_lock(users, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            os.close(users)
            raise StoreUnreachable(f"the embedded server in {place.state} is slow to stop: try again, or {WAYS_OUT}")
        time.sleep(0.005)
    return users


def _ensure(place: StateDir, deadline: float) -> None:
    """Wait until a keeper is alive, says that its server is ready, and the server answers."""
    started = False
    pause, begun = 0.002, time.monotonic()
    while True:
        with _held(place.state / "boot.lock", deadline, place):
            if not _has_keeper(place):
                if started and (word := _keepers_word(place)).startswith(keeper.FAILED):
                    why = f"{word.removeprefix(keeper.FAILED)}; see redis.log and keeper.log in {place.state}"
                    raise StoreUnreachable(f"the embedded server did not start: {why}; or {WAYS_OUT}")
                _start_keeper(place, deadline)
                started = True
        # The keeper's word comes first: a server whose keeper was killed may answer once more while it goes.
        if _keepers_word(place) == keeper.READY and place.trusts_socket_folder() and keeper.answers(place.socket):
            return
        if time.monotonic() > min(deadline, begun + FULL) and shutil.disk_usage(place.state).free < LEAST:
            full = f"there is no room on the disk of {place.state}"
            raise StoreUnreachable(f"the embedded server cannot start: {full}. Make room; or {WAYS_OUT}")
        if time.monotonic() > deadline:
            loading = keeper.ask(place.socket, b"PING").startswith(b"-LOADING")
            what = "is still loading its data: try again" if loading else "does not answer"
            raise StoreUnreachable(f"the embedded server {what}; see redis.log in {place.state}; or {WAYS_OUT}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _has_keeper(place: StateDir) -> bool:
    lock = keeper.open_lock(place.state / "keeper.lock")
    try:
        if is_free := keeper.try_lock(lock, fcntl.LOCK_SH):
            keeper.unlock(lock)
        return not is_free
    finally:
        os.close(lock)


def _keepers_word(place: StateDir) -> str:
    return (place.state / "keeper.lock").read_text(errors="replace")


def _start_keeper(place: StateDir, deadline: float) -> None:
    """Start one in a session of its own (no Ctrl-C, no hangup) and return once it holds its lock."""
    options = [str(redis_grace()), appendfsync()]
    place.create_socket_folder()
    place.trusts_socket_folder()
    arguments = [os.fspath(place.state), os.fspath(place.socket), os.fspath(find_binary()), *options]
    with (place.state / "keeper.log").open("ab") as log:
        if log.tell() > keeper.LOG_LIMIT:
            log.truncate(0)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the deadline is looked at by the caller
            subprocess.run(
                [sys.executable, "-I", "-S", keeper.__file__, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                start_new_session=True,
                timeout=max(0.1, deadline - time.monotonic()),
                check=False,
            )


@contextlib.contextmanager
def _held(path: Path, deadline: float, place: StateDir) -> Iterator[None]:
    lock = keeper.open_lock(path)
    try:
        while not keeper.try_lock(lock, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise StoreUnreachable(f"another process is starting the server in {place.state}: try again")
            time.sleep(0.005)
        try:
            yield
        finally:
            keeper.unlock(lock)
    finally:
        os.close(lock)


@contextlib.contextmanager
def _explained(place: StateDir) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise place.unusable(exc) from exc
