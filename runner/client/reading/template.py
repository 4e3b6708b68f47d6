"""The process that is forked to read a crew file, which is faster than starting an interpreter.

The submitting process passes it a connection, stdin, stdout and stderr for each crew file; the fork answers in lines of
JSON. Forks end with the other side of their connection, and all end when the socket is closed.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

STDIO = (0, 1, 2)
READ, PRELOAD = "read", "preload"  #: what a message asks for: read a crew file; import what crews of a kind need
_LENGTH = 64  #: bytes of a message


def message(what: str, kind: str = "") -> bytes:
    """Return a message to a template. ``READ`` comes with a connection and the descriptors of the standard streams."""
    return f"{what} {kind}".encode().ljust(_LENGTH)


def serve(control: socket.socket) -> NoReturn:
    """Fork for each connection that comes over ``control``, until that is closed."""
    forks: dict[int, socket.socket] = {}  # by their pid
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a fork whose submitter is interrupted goes with its connection
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        message = {fd for fd, _ in poll.poll()}
        for pid, connection in forks.items():  # first, for as long as the descriptors are those that were told
            if connection.fileno() in message:
                poll.unregister(connection)
                os.kill(pid, signal.SIGKILL)
        if wake.fileno() in message:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)
            for pid in [pid for pid in forks if _ended(pid, forks[pid])]:
                with forks.pop(pid) as connection, contextlib.suppress(KeyError):
                    poll.unregister(connection)
        if control.fileno() not in message:
            continue
        what, kind, fds = _asked(control)
        if not what:
            for pid in forks:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if what == PRELOAD:
            _preload(kind)
        if what == READ:
            connection = socket.socket(fileno=fds[0])
            pid = os.fork()
            if pid == 0:
                for other in (control, wake, woken, *forks.values()):
                    other.close()
                _read(connection, fds[1:])
            for fd in fds[1:]:
                os.close(fd)
            forks[pid] = connection
            poll.register(connection, 0)  # a hang-up is told without being asked for


def _asked(control: socket.socket) -> tuple[str, str, list[int]]:
    """Return the next request, its kind of crews, and the descriptors sent with it; "" at the end of the requests."""
    try:
        text, fds, _, _ = socket.recv_fds(control, _LENGTH, 1 + len(STDIO))
    except ConnectionError:
        return "", "", []
    what, _, kind = text.decode().strip().partition(" ")
    return what, kind, fds


def _ended(pid: int, connection: socket.socket) -> bool:
    """Whether a fork has ended; then the process that waits for its answer is notified how."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return False
    message = b"\n" + json.dumps({"ended": os.waitstatus_to_exitcode(status)}).encode() + b"\n"
    with contextlib.suppress(OSError):  # it went first, or does not listen
        connection.send(message, socket.MSG_DONTWAIT)
    return True


def _preload(adapter: str) -> None:
    from runner.engine import adapters

    with contextlib.suppress(Exception):  # whose crew needs it hears why it cannot be imported
        adapters.preload(adapter)


def _read(connection: socket.socket, stdio: list[int]) -> NoReturn:
    """In a fork: read the crew file that the first line names, answer, and answer further requests about the crew."""
    code = 1
    try:
        for fd, given in zip(STDIO, stdio, strict=True):
            os.dup2(given, fd)
            os.close(given)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, _interrupted)
        _answer_all(connection)
        code = 0
    finally:
        os._exit(code)


def _answer_all(connection: socket.socket) -> None:
    from runner.client.reading.crew import Reading, Request, refusal  # after the fork: a template has no use for it
    from runner.journal.imports import ReadCalls

    lines = connection.makefile("rb")
    asked = json.loads(lines.readline())
    request = Request.from_json(asked["request"])
    root = request.target.root

    def known() -> Any:
        connection.sendall(json.dumps({"wants": "calls"}).encode() + b"\n")
        return json.loads(lines.readline())

    known_calls = known if asked["known"] else None
    calls = ReadCalls(root, request.calls, paying=request.paying, known=known_calls)
    reading: list[Reading] = []

    def read() -> Any:
        _be_at(root, str(request.target.file), asked["environment"], asked["path"])
        reading.append(Reading(request, calls))
        return reading[0].found()

    def answer(work: Callable[[], Any]) -> bool:
        try:
            message = {"found": work()}
        except BaseException as error:
            message = {"refused": refusal(error, request, calls)}
        if calls.records:
            message["calls"] = calls.records
        message["unrecorded"] = calls.unrecorded
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        connection.sendall(json.dumps(message).encode() + b"\n")
        return "found" in message

    if answer(read):
        for line in lines:
            inputs = json.loads(line)
            answer(lambda inputs=inputs: reading[0].initial_state(inputs))  # type: ignore[misc]  # its type is that of the loop's variable


def _be_at(root: Path, file: str, environment: dict[str, str], path: list[str] | None) -> None:
    """Set up the process for the file: its project's folder, and the submitter's environment (and import path)."""
    gc.enable()
    os.environ.clear()
    os.environ.update(environment)
    if path is not None:
        sys.path[:] = path
    sys.argv = [file]  # what was typed is for this product
    os.chdir(root)


def _interrupted(*_: object) -> NoReturn:
    os._exit(130)


def main() -> NoReturn:
    """Entry point of a template that was started as a program: its socket is the descriptor that it was given."""
    control = socket.socket(fileno=int(sys.argv[1]))
    os.chdir("/")
    for name in ("runner.crews.adapter", "runner.client.reading.crew"):
        __import__(name)
    gc.collect()
    gc.freeze()
    serve(control)
