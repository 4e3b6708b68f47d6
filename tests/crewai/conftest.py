"""Crews made with the real CrewAI, in an interpreter that has it: it cannot be where the other tests' tools are."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
HERE = Path(__file__).parent
INSTALLED_WITHIN = 900  #: seconds


class Environment:
    """A virtual environment with this product and the newest CrewAI that it takes, made while other tests run."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rt-crewai-"))
        self.python = str(self.folder / "bin" / "python")
        self._log = (self.folder / "log").open("w+b")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder], check=True)
        install = [*_pip(), "--quiet", "--python", self.python, "install", "--no-compile", "--editable"]
        # Only what CrewAI imports is compiled, by importing it once.
        script = '"$@" && HOME="$0" CREWAI_DISABLE_TELEMETRY=1 "$0/bin/python" -c "import crewai"'
        self._process = subprocess.Popen(
            ["sh", "-c", script, self.folder, *install, f"{REPOSITORY}[crewai]"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    def ready(self) -> str:
        """Its interpreter, once it is there."""
        if self._process.wait(INSTALLED_WITHIN) != 0:
            why = f"CrewAI could not be installed: {(self.folder / 'log').read_text()[-1000:]}"
            if os.environ.get("RUNNER_TEST_ALL"):
                pytest.fail(why)
            pytest.skip(why)
        return self.python

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _pip() -> list[str]:
    """A pip that can install elsewhere: this environment may have none of its own."""
    for python in (sys.executable, getattr(sys, "_base_executable", sys.executable)):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return [python, "-m", "pip"]
    pytest.fail("no pip to install CrewAI with: name an interpreter that has it in RUNNER_TEST_CREWAI_PYTHON")


def _is_here() -> str | None:
    if given := os.environ.get("RUNNER_TEST_CREWAI_PYTHON"):
        return given
    return sys.executable if importlib.util.find_spec("crewai") is not None else None


_environment = pytest.StashKey[Environment]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Waiting for the installation counts for no test."""
    for item in items:
        if HERE in item.path.parents:
            given = item.get_closest_marker("timeout")
            limit = given.args[0] if given is not None and given.args else 180
            item.add_marker(pytest.mark.timeout(limit, func_only=True), append=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Installing takes a minute or two: it begins before the first test."""
    wanted = any(HERE in item.path.parents for item in session.items)
    if wanted and not session.config.option.collectonly and _is_here() is None and sys.version_info < (3, 14):
        session.config.stash[_environment] = Environment()


@pytest.fixture(scope="session")
def crewai_python(pytestconfig: pytest.Config) -> Iterator[str]:
    """An interpreter with CrewAI and this product's dependencies; the product itself comes from this tree.

    ``RUNNER_TEST_CREWAI_PYTHON``, or this one, or one made for the session. Where it cannot be made the tests are
    skipped; with ``RUNNER_TEST_ALL`` (in CI) they fail.
    """
    if here := _is_here():
        yield here
    elif sys.version_info >= (3, 14):
        pytest.skip("CrewAI is not made for Python 3.14")
    else:
        yield pytestconfig.stash[_environment].ready()


def pytest_unconfigure(config: pytest.Config) -> None:
    if (environment := config.stash.get(_environment, None)) is not None:
        environment.end()


@pytest.fixture
def crewai_fleet(fleet: Any, crewai_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Workers, and ``runner`` commands, that have CrewAI; their home is the test's own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    fleet.python = crewai_python
    return fleet
