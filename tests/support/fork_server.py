"""Starts ``runner`` commands, workers and scripts by forking a process that has imported already what they import.

A worker started by itself is busy for a second or two importing; there are hundreds in these tests. What is started is
a process like any other: of its own pid, environment, folder, files and signals; only what an interpreter reads as it
starts (its options, most ``PYTHON…`` variables, the locale) is the server's: there is one for each of those.
"""

import array
import atexit
import contextlib
import fcntl
import gc
import hashlib
import importlib
import json
import logging
import os
import platform
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

_READ_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "COVERAGE", "MALLOC")
"""How the names of variables begin that an interpreter, or the C library, reads as it starts."""

_HEEDED = frozenset({"PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TZ"})
"""Of those, what a process heeds that is forked: see `_run`."""

IMPORTED = "PYTHON_IMPORTED"
"""A variable of our own: what a server imports besides, for processes that have it."""

NOTHING = "-"  #: among those, for processes that need nothing else: their server is there in a fifth of the time

_COMMAND = ["-m", "runner"]


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(_READ_AT_START) and name not in _HEEDED
    }


def _kind(python: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    return (python, *map("=".join, sorted(_read_at_start(environment).items())))


# -- the tests' side


class ForkServer:
    """Those of a test session: one for each interpreter. `popen` is `subprocess.Popen` to its callers.

    The processes of a session share those in ``folder``: whoever is the first to need one starts it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._own = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="rt-forks-"))
        self._servers: dict[tuple[str, ...], socket.socket] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self._asked = {_kind(sys.executable, os.environ)}

    def popen(self, command: Sequence[Any], **options: Any) -> "subprocess.Popen[Any]":
        """Start a command of ``runner``, a script, or code after ``-c``: forked, unless nothing like it came before."""
        first, second = [*map(os.fspath, command[1:3]), "", ""][:2]
        if [first, second] == _COMMAND or first == "-c" or first.endswith(".py"):
            environment = options.get("env") or os.environ
            kind = _kind(command[0], environment)
            # What comes once is not worth a server, but of another interpreter more will come than the first.
            expected = kind in self._asked or all(python != command[0] for python, *_ in self._asked)
            self._asked.add(kind)
            if expected or IMPORTED in environment or self._path(kind).exists():  # of another process
                return _Forked(self, command, **options)
        return subprocess.Popen(command, **options)

    def fork(self, python: str, order: Mapping[str, Any], files: Sequence[int]) -> tuple[int, socket.socket]:
        """Have a process started. Returns its pid, and whence its exit status comes."""
        # Each is a message: who reads the pid late does not read the exit status with it, which may have come by then.
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            numbers = array.array("i", [there.fileno(), *files])
            self._server(python, order["environment"]).sendmsg(
                [json.dumps(order).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
            )
        return int(here.recv(32)), here

    def path(self, python: str, environment: Mapping[str, str]) -> Path:
        """Where the server for such processes listens."""
        self._server(python, environment)
        return self._path(_kind(python, environment))

    def _path(self, kind: tuple[str, ...]) -> Path:
        return self._folder / hashlib.sha256(repr(kind).encode()).hexdigest()[:12]

    def _server(self, python: str, environment: Mapping[str, str]) -> socket.socket:
        kind = _kind(python, environment)
        if kind not in self._servers:
            self._folder.mkdir(exist_ok=True)
            lock = os.open(self._folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._servers[kind] = self._connected(python, environment, self._path(kind))
            finally:
                os.close(lock)
        return self._servers[kind]

    def _connected(self, python: str, environment: Mapping[str, str], path: Path) -> socket.socket:
        """A connection to the server that listens there, which is started where there is none."""
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            ours.connect(str(path))
            return ours
        except OSError:
            path.unlink(missing_ok=True)  # it was killed
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listens:
            listens.bind(str(path))
            listens.listen(64)
            ours.connect(str(path))  # so that there is somebody for whom it runs
            kept = {
                name: value for name, value in os.environ.items() if not name.startswith((*_READ_AT_START, "RUNNER_"))
            }
            process = subprocess.Popen(
                [python, "-P", __file__, str(listens.fileno())],
                pass_fds=[listens.fileno()],
                env=kept | _read_at_start(environment),
                start_new_session=True,
            )
        self._started.append(process)
        return ours

    def close(self) -> None:
        """End what we started that still runs; and the servers, unless others use them."""
        for ours in self._servers.values():
            ours.close()
        for process in self._started:
            if self._own:
                process.wait()
            process.returncode = 0  # it ends with the last one who uses it
        self._servers.clear()
        self._started.clear()
        if self._own:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Forked(subprocess.Popen[Any]):
    """A process that the server started for us. It is the server's child: from there comes its exit status."""

    def __init__(self, server: ForkServer, command: Sequence[str], **options: Any) -> None:
        self._server = server
        self._status: socket.socket | None = None
        super().__init__(command, **options)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *more: Any) -> None:
        """As CPython 3.11 to 3.14 call it."""
        pass_fds, cwd, env, _startup, _flags, shell, *pipes = more[:12]
        assert (preexec_fn, shell) == (None, False)
        streams = [given if given != -1 else at for at, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        order = {
            "words": list(map(os.fspath, args[1:])),
            "environment": dict(os.environ if env is None else env),
            "folder": os.fspath(cwd or Path.cwd()),
            "own session": more[-2],
            "own group": more[-1] == 0,
            "passed": list(pass_fds),
        }
        self.pid, self._status = self._server.fork(args[0], order, [*streams, *pass_fds])
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def __del__(self, *given: Any) -> None:
        super().__del__(*given)  # which warns where nobody waited
        if self._status is not None:
            self._status.close()

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        assert self._status is not None
        if wait_flags == os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        with self._status:
            told = self._status.recv(32)
        return self.pid, int(told) if told else signal.SIGKILL  # the server itself is gone

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._status is not None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


# -- the server's side


def main(number: int) -> None:
    """Serve orders until nobody can give any more. Each is a process; of each its pid and its exit status are told.

    What somebody ordered who is gone is killed.
    """
    names = os.environ.get(IMPORTED, "").split(",")
    for name in filter(None, names if NOTHING in names else [*_import(), *names]):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no fork looks through it again
    assert threading.active_count() == 1  # a fork has only the one that forks
    listens = socket.socket(fileno=number)
    path = Path(listens.getsockname())
    users: dict[int, socket.socket] = {}
    watched: dict[int, tuple[int, socket.socket, int]] = {}
    poll = select.poll()
    poll.register(number, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in watched:
                pid, tell, _ = watched.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                with tell, contextlib.suppress(OSError):  # who asked may be gone
                    tell.send(str(os.waitpid(pid, 0)[1]).encode())
                continue
            if ready == number:
                user, _ = listens.accept()
                users[user.fileno()] = user
                poll.register(user, select.POLLIN)
                continue
            data, files = _order(users[ready])
            if not data:
                for pid, _, asked_by in watched.values():
                    if asked_by == ready:
                        _kill(pid)
                poll.unregister(ready)
                users.pop(ready).close()
                if not users:
                    path.unlink(missing_ok=True)
                    with contextlib.suppress(OSError):  # another one listens there
                        path.parent.rmdir()
                    return
                continue
            order = json.loads(data)
            if (pid := os.fork()) == 0:
                _become(lambda order=order, files=files: _as_ordered(order, files))
            tell = socket.socket(fileno=files[0])
            for one in files[1:]:
                os.close(one)
            end = os.pidfd_open(pid)
            watched[end] = (pid, tell, ready)
            poll.register(end, select.POLLIN)


def _import() -> Sequence[str]:
    """What workers and commands import, and what they look up once. Returns the names of what else they import."""
    preloaded.remember_entry_points()
    with contextlib.suppress(Exception):  # a worker says it
        adapters.preload("crewai")
        adapters.preload("crewai-flow")
    process_setup._preloaded.clear()  # so that a worker does again what it does beside importing
    exec(preloaded.IMPORTS, {})
    scripts.read()
    platform.platform()  # for which it starts a process
    return *WITH_THE_FIRST, *preloaded.OF_AGENTS


def _kill(pid: int) -> None:
    """Kill a child that was not waited for, with its group where it leads one."""
    if os.getpgid(pid) == pid:
        os.killpg(pid, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL)


def _order(orders: socket.socket) -> tuple[bytes, list[int]]:
    try:
        data, ancillary, _, _ = orders.recvmsg(1 << 20, socket.CMSG_SPACE(64))
    except ConnectionResetError:
        return b"", []
    numbers = array.array("i")
    for _, _, sent in ancillary:
        numbers.frombytes(sent[: len(sent) - len(sent) % numbers.itemsize])
    return data, list(numbers)


def _as_ordered(order: Mapping[str, Any], files: Sequence[int]) -> None:
    """In the new process: be the command that was ordered."""
    if order["own session"]:
        os.setsid()
    elif order["own group"]:
        os.setpgid(0, 0)
    os.write(files[0], str(os.getpid()).encode())  # from here on it can be signalled as what it is
    passed = order["passed"]
    given = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, max(passed, default=2) + 1) for number in files[1:]]
    for at, number in zip([0, 1, 2, *passed], given, strict=True):
        os.dup2(number, at)
    os.chdir(order["folder"])
    subprocess.Popen = _InPlace
    environment = order["environment"]
    _path[:] = dict.fromkeys([*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *_path])
    match order["words"]:
        case ["-m", module, *arguments]:
            _run(partial(_module, module), [module, *arguments], environment, [order["folder"], *_path], passed)
        case ["-c", code, *arguments]:
            _run(partial(_code, code), ["-c", *arguments], environment, ["", *_path], passed)
        case [script, *_]:
            path = [str(Path(script).resolve().parent), *_path]
            _run(partial(runpy.run_path, script, run_name="__main__"), order["words"], environment, path, passed)


def _module(name: str) -> None:
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _code(text: str) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), main.__dict__)


class _InPlace(subprocess.Popen[Any]):
    """In such a process: what reads crew files is forked of it where it would be started."""

    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        words = [] if isinstance(args, (str, bytes)) else list(args)
        self._program: Callable[[], Any] | None = None
        if words[:3] == [sys.executable, "-c", _READS] and threading.active_count() == 1:
            self._program, self._argv = partial(_code, _READS), ["-c", *words[3:]]
        super().__init__(args, *more, **options)

    def _execute_child(self, *given: Any) -> None:
        if self._program is None:
            super()._execute_child(*given)
            return
        _, _, preexec_fn, _, pass_fds, _, environment = given[:7]
        stdin, program, argv = given[10], self._program, self._argv
        self.pid = os.fork()
        if self.pid == 0:

            def as_started() -> None:
                if preexec_fn is not None:
                    preexec_fn()
                if stdin != -1:
                    os.dup2(stdin, 0)
                _run(program, argv, os.environ.copy() if environment is None else environment, _path, pass_fds)

            _become(as_started)
        self._child_created = True


def _become(something: Callable[[], None]) -> NoReturn:
    """In a new process: be that, and end as an interpreter ends. No way leads back."""
    code = 1
    try:
        for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            something()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        threading._shutdown()
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
        except OSError:
            code = 120
        sys.stderr.flush()
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code & 0xFF)


def _run(
    program: Callable[[], Any],
    argv: Sequence[str],
    environment: Mapping[str, str],
    path: Sequence[str],
    keep: Sequence[int],
) -> None:
    """Be an interpreter with this program, and no file open but the standard ones and those to ``keep``."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(one.name) for one in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in keep:  # whoever has it still may close it: it stays taken
            with contextlib.suppress(OSError):
                os.dup2(nothing, number, inheritable=False)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the process
    is_flushed = os.isatty(1) or "PYTHONUNBUFFERED" in environment
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1 if is_flushed else -1)  # noqa: SIM115 - open as long as the process
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115 - open as long as the process
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    time.tzset()
    sys.path[:] = path
    sys.argv = list(argv)
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    fault_points.arm(os.environ.get("RUNNER_CRASH_AT", ""))
    program()


if __name__ == "__main__":
    from runner.adapters.crewai import process_setup
    from runner.client.reading.process import _START as _READS
    from runner.core import fault_points
    from runner.engine import adapters
    from runner.providers.redis import scripts
    from runner.tasks.parent import WITH_THE_FIRST

    _path = list(sys.path)
    preloaded = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("preloaded.py"))))
    main(int(sys.argv[1]))
