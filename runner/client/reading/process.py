"""Starts and talks to the process that reads a crew file. Thread-safe."""

import atexit
import contextlib
import json
import multiprocessing.spawn
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from runner.client.reading import template
from runner.client.reading.crew import Found, Request, raise_again
from runner.core import hash_seed
from runner.core.errors import BadCrew

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from runner.client.reading.template import main
main()
"""

_START_THERE = """
from runner.client.reading.template import main
main()
"""


class Template:
    """The process that forks the reading processes. It is started when it is first needed.

    With ``python``, it runs that interpreter, with the interpreter's own import path.
    """

    def __init__(self, *, forked: bool = False, python: Path | None = None) -> None:
        self._forked, self.python = forked, python
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | int = 0
        self._kinds: dict[str, bool] = {}  # of crews that were read, and whether it has imported what they need

    def connect(self) -> socket.socket:
        """Return a connection to a new process that waits for its request."""
        with self._lock, _stdio() as stdio:
            for last in (False, True):
                control = self._ready()  # first: it must have no part of the connection
                ours, theirs = socket.socketpair()
                with theirs:
                    try:
                        socket.send_fds(control, [template.message(template.READ)], [theirs.fileno(), *stdio])
                        return ours
                    except OSError:  # it was killed
                        ours.close()
                        self._end()
                        if last:
                            raise
        raise AssertionError

    def note(self, kind: str) -> None:
        """Note that crews of this kind are read: for further ones, their framework is imported ahead."""
        self._kinds.setdefault(kind, False)

    def close(self) -> None:
        """End the process, and the processes that it forked."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """Forget the process, in a fork of this one: it belongs to the parent."""
        self._lock = threading.Lock()
        control, self._control, self._process = self._control, None, 0
        if control is not None:
            control.close()

    def _ready(self) -> socket.socket:
        """The connection to the process, which is there, and about to have what was asked for before."""
        if self._control is None:
            self._control = self._start()
            self._kinds = dict.fromkeys(self._kinds, False)
        for kind in [kind for kind, is_there in self._kinds.items() if not is_there]:
            self._kinds[kind] = True
            with contextlib.suppress(OSError):  # what is sent next says so
                self._control.sendall(template.message(template.PRELOAD, kind))
        return self._control

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            if self._forked:
                sys.stdout.flush()
                sys.stderr.flush()
                pid = os.fork()
                if pid == 0:
                    try:
                        ours.close()
                        template.serve(theirs)
                    finally:
                        os._exit(1)
                self._process = pid
            else:
                python = os.fsdecode(multiprocessing.spawn.get_executable())
                words = [python, "-c", _START, str(theirs.fileno()), json.dumps(_import_path())]
                if self.python is not None:
                    words = [str(self.python), "-P", "-c", _START_THERE, str(theirs.fileno())]
                self._process = subprocess.Popen(
                    words, env=hash_seed.with_seed(os.environ), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
                )
        return ours

    def _end(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            control.close()
        process, self._process = self._process, 0
        if isinstance(process, int):
            if process:
                os.waitpid(process, 0)
        else:
            process.wait()


_shared = Template()
atexit.register(_shared.close)
os.register_at_fork(after_in_child=_shared.forget)


class Reader:
    """Reads one crew file. ``alone``: this process has one thread, so it may be forked if it has the workers' seed.

    With ``python``, it is read by that interpreter. ``known`` is called if the file makes a call of a model; it returns
    the records of those that were made when it was read before.
    """

    def __init__(
        self,
        request: Request,
        *,
        alone: bool = False,
        python: Path | None = None,
        known: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._request = request
        self._alone = alone and threading.active_count() == 1 and python is None and hash_seed.is_fixed()
        self._python, self._known, self._answered = python, known, 0
        self.unrecorded = 0  #: how many calls the file made past the journal
        self._lock = threading.Lock()
        self._pid = 0
        self._start()

    @property
    def calls(self) -> Mapping[str, str]:
        """Return the records of the calls of models that the file made while it was read."""
        return self._request.calls

    @property
    def paid(self) -> int:
        """Return how many of these were not known before."""
        return len(self.calls) - self._answered

    def found(self) -> Found:
        """Return the result of reading. Raises `UsageError` if something is wrong with the file.

        If `initial_state` will not be called, close it.
        """
        found: Found = self._answer()
        self._template.note(found["adapter"])
        return found

    def initial_state(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the initial state of a run with these inputs, from the process that read the file, or from another."""
        with self._lock:
            for last in (False, True):
                if self._pid != os.getpid():  # a fork of the one that has the connection
                    self._start()
                    self._answer()
                try:
                    self._send(inputs)
                    answer: dict[str, Any] = self._answer()
                    return answer
                except (OSError, _Ended):
                    if last:
                        raise
                    self._pid = 0
        raise AssertionError

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._close()

    def _start(self) -> None:
        self._pid = os.getpid()
        own = self._alone or self._python is not None
        self._template = Template(forked=self._alone, python=self._python) if own else _shared
        self._connection = self._template.connect()
        self._lines = self._connection.makefile("rb")
        self._close = weakref.finalize(self, _close, self._connection, self._lines, own and self._template)
        with contextlib.suppress(OSError):  # it died at once: the answer says how
            self._send(
                {
                    "request": asdict(self._request),
                    "environment": dict(os.environ),
                    "path": None if self._python else _import_path(),
                    "known": self._known is not None,
                }
            )

    def _send(self, asked: Any) -> None:
        self._connection.sendall(json.dumps(asked, default=os.fspath).encode() + b"\n")

    def _answer(self) -> Any:
        answer = self._line()
        if "wants" in answer and self._known is not None:
            records = dict(self._known())
            self._answered += len(records)
            self._send(records)
            answer = self._line()
        self._request = replace(self._request, calls=answer.get("calls", self.calls))
        self.unrecorded = answer.get("unrecorded", self.unrecorded)
        if "ended" in answer:
            raise _Ended(f"{self._request.target.file.name}: {_how_it_ended(answer['ended'])}")
        if "refused" in answer:
            raise_again(answer["refused"])
        return answer["found"]

    def _line(self) -> dict[str, Any]:
        with contextlib.suppress(ConnectionError):
            for line in self._lines:
                with contextlib.suppress(ValueError):  # empty, or what it did not say to the end
                    found: dict[str, Any] = json.loads(line)
                    return found
        return {"ended": -signal.SIGKILL}


class _Ended(BadCrew):
    """The process that read a crew file ended before it answered."""


def _how_it_ended(code: int) -> str:
    if code == 130:
        return "reading it was interrupted"
    if code >= 0:
        return f"the crew file ended the process that reads it (exit {code})"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the process that read it was killed ({name})"


def _close(connection: socket.socket, lines: IO[bytes], template: Template | bool) -> None:
    lines.close()
    connection.close()
    if isinstance(template, Template):
        template.close()


def _import_path() -> list[str]:
    """Return the import path of this process, valid in any working directory."""
    return [os.path.abspath(one) for one in sys.path]  # noqa: PTH100 - links stay as they are


@contextlib.contextmanager
def _stdio() -> Iterator[list[int]]:
    """Provide the descriptors of stdin, stdout and stderr; a closed one is replaced by the null device."""
    with open(os.devnull, "r+b", buffering=0) as nothing:  # noqa: PTH123 - a device
        found = []
        for fd in template.STDIO:
            try:
                os.fstat(fd)
                found.append(fd)
            except OSError:
                found.append(nothing.fileno())
        yield found
