"""pytest-xdist's processes are forked from a template that has read all tests: it is most of what each does to begin.

``python session_template.py ADDRESS WORDS...`` is what xdist starts in the place of an interpreter: it has one forked,
and ends as that does. Where there is no template it becomes an interpreter itself.
"""

import array
import os
import signal
import socket
import sys

TYPE_CHECKING = False  # `typing` is half of what the start would import
if TYPE_CHECKING:
    from typing import Any, NoReturn

SERVE = "--serve"
TO_ALL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)  #: what a terminal sends to each process of a group


def main(address: str, *words: str) -> int:
    """The exit status of the fork."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    template = _socket()
    try:
        template.connect(f"\0{address}")
        order = repr((words[-1], dict(os.environ))).encode()
        files = array.array("i", [there.fileno(), 0, 1, 2])
        template.sendmsg([order], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        there.close()
        pid = int(here.recv(32))
    except (OSError, ValueError):  # it could not read them: xdist is told why by one that cannot, either
        os.execv(sys.executable, [sys.executable, *words])
    for signum in TO_ALL:
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    for number in (0, 1):  # else xdist would not see that the fork closed them
        os.close(number)
    return abs(os.waitstatus_to_exitcode(int(here.recv(32) or signal.SIGKILL)))


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


# -- the test command's side


class SessionTemplate:
    """That of one test command, with which it ends, however that does."""

    def __init__(self, name: str, root: str) -> None:
        import subprocess

        self._address = f"rt-session-{name}"
        self._ours = _socket()
        with _socket() as listens:
            listens.bind(f"\0{self._address}")
            listens.listen(64)
            self._ours.connect(f"\0{self._address}")  # so that there is somebody for whom it runs
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, SERVE, str(listens.fileno())], pass_fds=[listens.fileno()], cwd=root,
                env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def python(self) -> str:
        """What xdist is to start, in a shell's words."""
        import shlex

        return shlex.join([sys.executable, "-IS", __file__, self._address])

    def close(self) -> None:
        """Once its forks have ended."""
        self._ours.close()
        self._process.wait()


# -- the template's side


def serve(number: int) -> None:
    """Read the tests, then fork when asked, until nobody is left who might. A fork is killed if who asked is gone."""
    import gc
    import select
    import threading

    from runner.core.processes import end_with_parent

    end_with_parent(signal.SIGKILL)
    if not _read():  # a fork would find what is half imported, and no test in it
        print("each process reads the tests for itself: not all of them can be read", file=sys.stderr)
        return
    if threading.active_count() > 1:  # a fork would have but one
        names = ", ".join(one.name for one in threading.enumerate() if one is not threading.main_thread())
        print(f"each process reads the tests for itself: reading them started a thread, {names}", file=sys.stderr)
        return
    handlers = {signum: signal.getsignal(signum) for signum in TO_ALL}
    for signum in TO_ALL:
        signal.signal(signum, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    listens = socket.socket(fileno=number)
    users: dict[int, socket.socket] = {}
    forks: dict[int, tuple[int, socket.socket, int]] = {}
    poll = select.poll()
    poll.register(number, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == number:
                user, _ = listens.accept()
                users[user.fileno()] = user
                poll.register(user, select.POLLIN)
            elif ready in forks:
                pid, tell, _ = forks.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                _send(tell, os.waitpid(pid, 0)[1])
                tell.close()
            elif (order := _order(users[ready])) is not None:
                code, environment, files = order
                if (pid := os.fork()) == 0:
                    for one in (listens, *users.values(), *(tell for _, tell, _ in forks.values())):
                        one.close()
                    for one in forks:
                        os.close(one)
                    _become(code, environment, files, handlers)
                for one in files[1:]:
                    os.close(one)
                end = os.pidfd_open(pid)
                forks[end] = pid, socket.socket(fileno=files[0]), ready
                poll.register(end, select.POLLIN)
                _send(forks[end][1], pid)
            else:
                for end, (_, _, asked_by) in forks.items():
                    if asked_by == ready:
                        signal.pidfd_send_signal(end, signal.SIGKILL)
                poll.unregister(ready)
                users.pop(ready).close()
                if not users:
                    return


def _read() -> bool:
    """Import all test files as pytest does, and what they import when first used. Returns whether all were read."""
    import contextlib
    import importlib

    import pytest

    # What runs tests again has a thread; it is not missed here.
    failed = pytest.main(["--collect-only", "-qq", "-n0", "-pno:cacheprovider", "-pno:rerunfailures"])
    later = sys.modules.get("tests.support.later")
    for name in later.NAMES if later else ():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return not failed


def _send(to: socket.socket, number: int) -> None:
    import contextlib

    with contextlib.suppress(OSError):  # who asked is gone
        to.send(str(number).encode())


def _order(user: socket.socket) -> tuple[str, dict[str, str], list[int]] | None:
    """The code, the environment, and the files of a process to fork."""
    import ast

    try:
        data, files, _, _ = socket.recv_fds(user, 1 << 20, 8)
    except OSError:
        return None
    return (*ast.literal_eval(data.decode()), files) if data else None


def _become(code: str, environment: dict[str, str], files: list[int], handlers: "dict[int, Any]") -> "NoReturn":
    """In a fork: be ``python -c`` with that, and no way leads back."""
    import atexit
    import contextlib
    import threading
    import traceback
    from types import ModuleType

    status = 1
    try:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
        for at, number in enumerate(files[1:]):
            os.dup2(number, at)
        for number in files:
            os.close(number)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115 - open as long as the process
        sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115 - open as long as the process
        sys.argv = ["-c"]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), main.__dict__)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status & 0xFF)


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(int(sys.argv[2]))
    else:
        sys.exit(main(*sys.argv[1:]))
