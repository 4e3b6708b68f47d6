"""The keeper: a small process that owns one embedded server and stops it after its last user.

Started as a file, ``python -I -S keeper.py STATE SOCKET BINARY GRACE FSYNC``, so this module imports the standard
library alone; the rest of the package imports its locks and its ``ask`` from here.

All locks are flock: the kernel drops them however a process dies.

- ``users.lock``   shared, by every process that uses the server: the reference count. The keeper takes it exclusively
                   to learn that no user is left, and keeps it while it stops the server, so that none joins then.
- ``keeper.lock``  exclusive, by the keeper for its life. Its content is the keeper's word on the server: empty (not
                   yet), ``ready``, or ``failed`` and why. A new keeper empties it before its starter sees it up.
- ``boot.lock``    exclusive, held for a moment by who looks for a keeper and starts one.
- ``server.lock``  exclusive, inherited by the server: a successor waits until the one before is really gone, so the
                   data has one writer and a dying server never removes the socket of the next.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: What the keeper writes into keeper.lock.
READY = "ready"
FAILED = "failed "

#: A log above this many bytes is emptied.
LOG_LIMIT = 1_000_000

#: Starts in a row that never came to answer, before the keeper gives up.
MAX_FAILURES = 4

#: Seconds a server gets to exit; after that SIGKILL, which loses nothing either: its writes are in the file.
STOP_TIMEOUT = 20.0

_PR_SET_PDEATHSIG = 1


class GaveUp(Exception):
    """The server cannot be started; the message says why."""


def open_lock(path: Path) -> int:
    """Open a lock file; the descriptor does not pass to programs this process executes."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def try_lock(fd: int, how: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Give the lock up for every holder of the descriptor: a child forked meanwhile must not keep it."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def ask(socket_path: Path, command: bytes, timeout: float = 1.0) -> bytes:
    """Send one inline command and return the first bytes of the answer; nothing if there is no server."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(os.fspath(socket_path))
            connection.sendall(command + b"\r\n")
            return connection.recv(4096)
        except OSError:
            return b""


def answers(socket_path: Path) -> bool:
    """Whether a server is up and done with loading its data."""
    return ask(socket_path, b"PING").startswith(b"+PONG")


def note(text: str) -> None:
    """Write a line to keeper.log, which is this process's stderr."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), os.getpid(), text, file=sys.stderr, flush=True)


class Server:
    """The server process: at most one per state directory, started again whenever it is gone."""

    def __init__(self, state: Path, socket_path: Path, binary: str, fsync: str, say: Callable[[str], None]) -> None:
        self._socket = socket_path
        self._lock_path = state / "server.lock"
        self._log = state / "redis.log"
        self._data = state / "data"
        self._say = say  # tells the joiners how the server is
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._failures = 0
        self._not_before = 0.0
        self._log_from = 0
        self._predecessor_since = 0.0
        self._keeper = os.getpid()
        self._prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
        # base file in plain commands: any server >= 7.0, Redis or Valkey, loads what another one wrote
        self._command = [
            binary,
            *("--port", "0", "--unixsocket", os.fspath(socket_path), "--unixsocketperm", "700"),
            *("--dir", os.fspath(self._data), "--daemonize", "no", "--save", ""),
            *("--appendonly", "yes", "--appendfsync", fsync, "--aof-use-rdb-preamble", "no"),
            *("--hash-max-listpack-value", "256"),  # as in ops/redis.conf
            *("--maxmemory-policy", "noeviction", "--logfile", os.fspath(self._log), "--loglevel", "notice"),
        ]

    @property
    def ready(self) -> bool:
        """Whether the process runs and has answered."""
        return self._ready

    def tend(self) -> None:
        """Look once, and do what is due: start, notice that it answers, notice that it died."""
        process = self._process
        if process is None:
            if time.monotonic() >= self._not_before:
                self._start()
        elif process.poll() is not None:
            self._died(process.returncode)
        elif not self._ready:
            if answers(self._socket):
                self._ready, self._failures = True, 0
                self._say(READY)
        elif not self._socket.exists():
            self._kill(process)  # it was cleaned away; only a new server makes a new one

    def stop(self) -> None:
        """End the server: it writes out and syncs what it has."""
        self._say("")
        if self._process:
            self._kill(self._process)
            self._process, self._ready = None, False

    def _start(self) -> None:
        lock = open_lock(self._lock_path)
        try:
            if not try_lock(lock, fcntl.LOCK_EX):
                self._end_predecessor()
                return
            self._predecessor_since = 0.0
            self._data.mkdir(mode=0o700, exist_ok=True)
            self._log_from = self._log.stat().st_size if self._log.exists() else 0
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
                pass_fds=(lock,),
                preexec_fn=self._die_with_keeper,
            )
        except OSError as exc:
            raise GaveUp(f"{self._command[0]}: {exc.strerror}") from exc
        else:
            note(f"server {self._process.pid} started: {self._command[0]}")
        finally:
            os.close(lock)  # the server's copy holds the lock from here on

    def _die_with_keeper(self) -> None:
        # Linux only; elsewhere a killed keeper's server lives on until the next keeper replaces it.
        if self._prctl:
            self._prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != self._keeper:
                os._exit(1)  # killed before the call above

    def _died(self, returncode: int) -> None:
        self._process = None
        self._say("")
        how = f"was ended by signal {-returncode}" if returncode < 0 else f"exited with status {returncode}"
        note(f"server {how}")
        if self._ready:
            self._ready = False
            return  # it worked until now: again at once
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            raise GaveUp(f"{self._command[0]} {how} {self._last_words()}".rstrip())
        self._not_before = time.monotonic() + 0.025 * 2**self._failures

    def _last_words(self) -> str:
        """What the server last complained about in its log, since this start."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._log_from)
                lines = log.read(64_000).decode(errors="replace").splitlines()
        except OSError:
            return ""
        complaints = [line.split(" # ", 1)[1] for line in lines if " # " in line]
        return f"({complaints[-1].strip()})" if complaints else ""

    def _end_predecessor(self) -> None:
        """Another keeper's server still has the data: wait, after asking it to leave."""
        now = time.monotonic()
        first_look = not self._predecessor_since
        self._predecessor_since = self._predecessor_since or now
        overdue = now - self._predecessor_since > STOP_TIMEOUT
        if first_look or overdue:
            head, _, rest = ask(self._socket, b"INFO server").partition(b"process_id:")
            if head and rest:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(rest.split()[0]), signal.SIGKILL if overdue else signal.SIGTERM)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Keeper:
    """Tends the server until it was unused for the grace time, or until told to stop."""

    def __init__(self, state: Path, server: Server, grace: float) -> None:
        self._state = state
        self._server = server
        self._grace = grace
        self._users_path = state / "users.lock"
        self._users = open_lock(self._users_path)
        self._idle_since: float | None = None
        self._told_to_stop = False
        self._wake = self._wake_on_signals()

    def run(self) -> None:
        """Return once the server is stopped."""
        try:
            while True:
                self._server.tend()
                self._cap_logs()
                if self._told_to_stop or self._state_is_gone() or self._is_unused():
                    break
                self._sleep(min(0.5, max(0.02, self._grace / 4)) if self._server.ready else 0.01)
        finally:
            self._server.stop()

    def _is_unused(self) -> bool:
        """Whether the grace time is over; if so, users.lock stays taken until this process ends."""
        now = time.monotonic()
        if not try_lock(self._users, fcntl.LOCK_EX):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= self._grace:
            return True
        unlock(self._users)
        return False

    def _state_is_gone(self) -> bool:
        """Whether the state directory was removed or replaced: then no process can join this server any more."""
        try:
            return not os.path.samestat(self._users_path.stat(), os.fstat(self._users))
        except OSError:
            return True

    def _cap_logs(self) -> None:
        for name in ("redis.log", "keeper.log"):
            log = self._state / name
            with contextlib.suppress(OSError):
                if log.stat().st_size > LOG_LIMIT:
                    os.truncate(log, 0)  # both are written in append mode

    def _wake_on_signals(self) -> int:
        """Make the end of the server, and a request to stop, end the sleep at once."""

        def stop(*_: object) -> None:
            self._told_to_stop = True

        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the starter may have blocked any of them
        return reading

    def _sleep(self, seconds: float) -> None:
        if select.select([self._wake], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)


def main(state: Path, socket_path: Path, binary: str, grace: float, fsync: str) -> int:
    """Become the keeper of this state directory, unless it has one."""
    own = open_lock(state / "keeper.lock")
    if not try_lock(own, fcntl.LOCK_EX):
        return 0
    os.ftruncate(own, 0)
    # The starter waits for the parent alone: from there on the lock is held, and no zombie is ever its child.
    if os.fork():
        os._exit(0)
    os.umask(0o077)

    def say(word: str) -> None:
        os.ftruncate(own, 0)
        os.pwrite(own, word.encode(errors="replace"), 0)

    try:
        Keeper(state, Server(state, socket_path, binary, fsync, say), grace).run()
    except GaveUp as exc:
        note(f"gave up: {exc}")
        say(FAILED + str(exc))
        return 1
    else:
        note("stopped")
        return 0
    finally:
        if socket_path.parent != state:
            with contextlib.suppress(OSError):
                socket_path.parent.rmdir()  # the server removed its socket


if __name__ == "__main__":
    _state, _socket, _binary, _grace, _fsync = sys.argv[1:]
    sys.exit(main(Path(_state), Path(_socket), _binary, float(_grace), _fsync))
