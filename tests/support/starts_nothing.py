"""The quick loop starts no process and opens no socket: a test of it that does fails, and is to be marked as slow."""

import sys
from collections.abc import Generator

import pytest

STARTED = ("os.fork", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.bind", "socket.connect")


class StartsNothing:
    """A plugin of the quick loop alone: elsewhere threads of other tests may be at work, and an audit hook stays."""

    def __init__(self) -> None:
        self._started: list[str] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, _: object) -> None:
        if self._started is not None and event.startswith(STARTED):
            self._started.append(event)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """From before its fixtures."""
        self._started = []
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        """Until they are gone."""
        try:
            yield
            assert self._started == [], "it is marked as fast"
        finally:
            self._started = None
