"""The quick loop is done by several processes, all but one of which are forked when all tests are read: that is a
quarter of what it does.
"""

import contextlib
import itertools
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pytest

from runner.core.processes import end_with_parent

from .same_process import SameProcess

MOST = 4  #: processes: for more there is little left that can be divided
IN_ONE = ("usepdb", "trace", "processor_time", "collectonly")  #: options that ask for one process
_HEAD = 4  #: bytes of a length, and of a file's number

Files = Sequence[Sequence[pytest.Item]]


class SideBySide:
    """Each process takes test files until none is left; what the others report, the session of the first is told."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """In the place of pytest's own, unless somebody looks at one process, or xdist has several."""
        by_file = itertools.groupby(session.items, lambda item: item.path)
        files = sorted((list(items) for _, items in by_file), key=len, reverse=True)
        processes = min(len(os.sched_getaffinity(0)) + 1, len(files), MOST)  # one more, as some tests wait
        if session.testsfailed or processes < 2 or not _may_be_several(session.config):
            return None
        session.config._tmp_path_factory.getbasetemp()  # one folder for all
        turns = _turns(len(files))
        others = [_Other(session, _taken(turns, files)) for _ in range(processes - 1)]
        try:
            for _ in _done(session, _taken(turns, files)):
                for other in others:
                    other.pass_on()
            for other in others:
                other.wait()
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
        finally:
            os.close(turns)
            for other in others:
                other.close()
        return True


def _may_be_several(config: pytest.Config) -> bool:
    is_traced = "COVERAGE_RUN" in os.environ or sys.gettrace() or sys.getprofile()
    by_xdist = hasattr(config, "workerinput") or config.pluginmanager.hasplugin("dsession")
    asked = any(map(config.getoption, IN_ONE)) or config.getoption("capture") == "no"
    return not (is_traced or by_xdist or asked or threading.active_count() > 1)


def _turns(files: int) -> int:
    """The end of a pipe from which the number of each file is read once, by one of all the processes."""
    turns, left = os.pipe()
    for number in range(files):
        os.write(left, number.to_bytes(_HEAD, "big"))
    os.close(left)
    return turns


def _taken(turns: int, files: Files) -> Iterator[pytest.Item]:
    """The tests of the files that this process takes."""
    while number := os.read(turns, _HEAD):
        yield from files[int.from_bytes(number, "big")]


def _done(session: pytest.Session, items: Iterator[pytest.Item]) -> Iterator[None]:
    """Do these tests, as pytest's own loop does; pauses after each file."""
    for item, following in itertools.pairwise(itertools.chain(items, [None])):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        if following is None or following.path != item.path:
            yield


class _Other:
    """A fork of this process that does tests, and writes what it reports to a file that has no name."""

    def __init__(self, session: pytest.Session, items: Iterator[pytest.Item]) -> None:
        self._config = session.config
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open until `close`
        self._read = 0
        self._pid: int | None = os.fork()
        if not self._pid:
            self._be(session, items)

    # -- in the fork

    def _be(self, session: pytest.Session, items: Iterator[pytest.Item]) -> NoReturn:
        """No way leads back. All that is left to do for a session the first process does."""
        status = 1
        try:
            end_with_parent(signal.SIGKILL)
            reports: list[dict[str, Any]] = []
            plugins = self._config.pluginmanager
            plugins.unregister(name="terminalreporter")
            plugins.unregister(name="same_process")
            plugins.register(SameProcess(), "same_process")
            captures: Any = plugins.get_plugin("capturemanager")
            self._captures = captures._global_capturing  # to files of the first process, which stay as they are
            captures._global_capturing = None
            captures.start_global_capturing()
            plugins.register(_Reports(self._config, reports))
            with contextlib.suppress(session.Failed):  # as by -x: the first does the same, once it is told
                for _ in _done(session, items):
                    self._write(reports)
                    reports.clear()
            self._write(reports)
            status = 0
        except BaseException:
            self._write(traceback.format_exc())
        finally:
            os._exit(status)

    def _write(self, what: list[dict[str, Any]] | str) -> None:
        data = pickle.dumps(what)
        self._file.write(len(data).to_bytes(_HEAD, "big") + data)
        self._file.flush()

    # -- in the first process

    def pass_on(self) -> None:
        """What it has reported since, as if it were of this process."""
        hook = self._config.hook
        data = os.pread(self._file.fileno(), 1 << 30, self._read)
        while len(data) >= (end := _HEAD + int.from_bytes(data[:_HEAD], "big")) > _HEAD:
            found, data = pickle.loads(data[_HEAD:end]), data[end:]
            self._read += end
            if isinstance(found, str):
                raise RuntimeError(f"of another process of the quick loop: {found}")
            for one in found:
                report = hook.pytest_report_from_serializable(config=self._config, data=one)
                if report.when == "setup":
                    hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
                hook.pytest_runtest_logreport(report=report)

    def wait(self) -> None:
        """Until it has ended, and pass on the rest."""
        assert self._pid
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._pid = None
        self.pass_on()
        if status:
            raise RuntimeError(f"another process of the quick loop ended with {status}")

    def close(self) -> None:
        """Ends it, if it has not ended."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._file.close()


class _Reports:
    """Keeps each report as what can be written."""

    def __init__(self, config: pytest.Config, reports: list[dict[str, Any]]) -> None:
        self._config, self._reports = config, reports

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
