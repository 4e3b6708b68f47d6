"""Crews made with the real CrewAI, in an interpreter that has it: it cannot be where the other tests' tools are."""

import contextlib
import fcntl
import importlib.util
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from runner.testing import ModelServer, eventually
from runner.testing import fleet as testing_fleet

REPOSITORY = Path(__file__).parents[3]
HERE = Path(__file__).parent
INSTALLED_WITHIN = 900  #: seconds


class Environment:
    """A virtual environment with this product and the newest CrewAI that it takes, made while other tests run.

    The processes of one test run share it: the first makes it, the last one removes it.
    """

    def __init__(self, run: str) -> None:
        self.folder = Path(tempfile.gettempdir()) / f"rt-crewai-{run}"
        self.folder.mkdir(exist_ok=True)
        self.python = str(self.folder / "bin" / "python")
        self._used = (self.folder / "used").open("a")
        fcntl.flock(self._used, fcntl.LOCK_SH)
        with self._making() as lock:
            if _locked(lock) and not (self.folder / "made").exists():
                self._make(lock)

    def _making(self) -> IO[str]:
        return (self.folder / "making").open("a")

    def _make(self, lock: IO[str]) -> None:
        """The lock is held for as long as one of the processes started here has it."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder], check=True)
        # By uv, which uses a tenth of pip's time; where it finds no index, pip may know one by its own settings.
        what = ["--editable", f"{REPOSITORY}[crewai]"]
        uv = [Path(sysconfig.get_path("scripts")) / "uv", "pip", "install", "--quiet", "--python", self.python, *what]
        pip = [*_pip(), "--quiet", "--python", self.python, "install", "--no-compile", *what]
        # Only what CrewAI imports is compiled, by importing it once.
        script = (
            f"{{ {shlex.join(map(str, uv))} || {shlex.join(map(str, pip))}; }}"
            ' && HOME="$0" CREWAI_DISABLE_TELEMETRY=1 "$0/bin/python" -c "import crewai" && touch "$0/made"'
        )
        # With the authorities of this machine: those of the tests are none.
        settings = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["sh", "-c", script, self.folder], env=settings,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=[lock.fileno()],
            )  # fmt: skip
        process.returncode = 0  # others wait for it as well: by the lock
        (self.folder / "pid").write_text(str(process.pid))

    def ready(self) -> str:
        """Its interpreter, once it is there."""
        with self._making() as lock:
            eventually(lambda: _locked(lock), within=INSTALLED_WITHIN, why="CrewAI is installed")
        if not (self.folder / "made").exists():
            why = f"CrewAI could not be installed: {(self.folder / 'log').read_text()[-1000:]}"
            if os.environ.get("RUNNER_TEST_ALL"):
                pytest.fail(why)
            pytest.skip(why)
        return self.python

    def end(self) -> None:
        with self._used:
            if not _locked(self._used):
                return
            with contextlib.suppress(OSError), self._making() as lock:
                if not _locked(lock):
                    os.killpg(int((self.folder / "pid").read_text()), signal.SIGKILL)
            shutil.rmtree(self.folder, ignore_errors=True)


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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


def _run_of(config: pytest.Config) -> str:
    """What names the test run, in each of its processes."""
    given: dict[str, str] = getattr(config, "workerinput", {})  # in a worker of pytest-xdist
    return given.get("testrunuid") or uuid.uuid4().hex


_environment = pytest.StashKey[Environment]()


def _ours(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Those of this folder. Of the thousands that there are each file's path is looked at once."""
    for path, of_file in itertools.groupby(items, lambda item: item.path):
        if HERE in path.parents:
            yield from of_file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Waiting for the installation counts for no test."""
    for item in _ours(items):
        given = item.get_closest_marker("timeout")
        limit = given.args[0] if given is not None and given.args else 180
        item.add_marker(pytest.mark.timeout(limit, func_only=True), append=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Installing takes a minute or two: it begins before the first test."""
    wanted = next(_ours(session.items), None) is not None
    if wanted and not session.config.option.collectonly and _is_here() is None and sys.version_info < (3, 14):
        session.config.stash[_environment] = Environment(_run_of(session.config))


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
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """Models that say what a test sets, which are those of OpenAI here."""
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.root + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
        yield server


@pytest.fixture
def run_crewai(crewai_python: str) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs a script, or ``-c`` and code, with CrewAI to its end, forked from a process that has imported that."""

    def run(
        *words: Any, env: Mapping[str, str] = os.environ, cwd: Path | None = None, input: str = "", timeout: float = 400
    ) -> "subprocess.CompletedProcess[str]":
        pipe = subprocess.PIPE
        with testing_fleet.launch(
            [crewai_python, *words], env={"PYTHONPATH": str(REPOSITORY), **env}, cwd=cwd,
            stdin=pipe, stdout=pipe, stderr=pipe, text=True,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(input, timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return run


@pytest.fixture
def crewai_fleet(fleet: Any, crewai_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Workers, and ``runner`` commands, that have CrewAI; their home is the test's own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    fleet.python = crewai_python
    fleet.starts_within = 120.0  # it imports CrewAI first
    return fleet
