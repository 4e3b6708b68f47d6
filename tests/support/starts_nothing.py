"""A fast test starts no process and opens no socket: one that does fails, and is to be marked as slow."""

import sys
import threading
from collections.abc import Generator

import pytest

STARTED = ("os.fork", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.bind", "socket.connect")


class StartsNothing:
    """Watches those marked as fast, in each session: else only somebody who runs the quick loop would see it.

    ``all_threads``: a thread that a test left may be at work, so outside of the quick loop only the tests' own counts.
    """

    def __init__(self, all_threads: bool) -> None:
        self._started: list[str] | None = None
        self._thread = None if all_threads else threading.get_ident()
        sys.addaudithook(self._note)

    def _note(self, event: str, _: object) -> None:
        started = self._started
        if started is not None and event.startswith(STARTED) and self._thread in (None, threading.get_ident()):
            started.append(event)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """From before its fixtures."""
        self._started = [] if item.get_closest_marker("fast") else None
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        """Until they are gone."""
        try:
            yield
            assert not self._started, "it is marked as fast"
        finally:
            self._started = None
