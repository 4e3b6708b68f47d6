"""What a test forks ends in that test: a child whose code raised would go on as a second test run."""

import os
from os import getpid  # a test may have another one in its place

import pytest

FAILED = 70


class SameProcess:
    """Ends a fork of the test run that came out of its test, before it reports anything."""

    def __init__(self) -> None:
        self._pid = getpid()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """After each phase; the test that forked sees how its child ended, and standard error has what it raised."""
        if getpid() != self._pid:
            raised = call.excinfo.getrepr() if call.excinfo else "nothing"
            os.write(2, f"a fork came out of {item.nodeid}: {raised}\n".encode())
            os._exit(FAILED)
