"""State directories whose servers are gone when the test is over, and users in processes of their own."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from runner.client.embedded.paths import StateDir

#: Short, for tests that wait for it.
GRACE = 0.05

PS = shutil.which("ps") or "ps"  # found now: some tests leave nothing on PATH

USER = """
import sys
from pathlib import Path
from runner.client.embedded import join
membership = join(Path(sys.argv[1]))
print("joined", flush=True)
exec(sys.argv[2])
sys.stdin.read()
"""


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def processes(*words: str) -> dict[int, str]:
    """Return the living processes (no zombies) whose command line has all these words."""
    listing = subprocess.run([PS, "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = (line.strip().partition(" ") for line in listing.splitlines())
    return {int(pid): args for pid, _, args in rows if all(word in args for word in words)}


class State:
    """A state directory, and who serves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._users: list[subprocess.Popen[str]] = []

    def user(self, code: str = "") -> subprocess.Popen[str]:
        """Start a process that joins, runs the code and stays."""
        user = self.cold_user(code)
        assert user.stdout.readline() == "joined\n"
        return user

    def cold_user(self, code: str = "") -> subprocess.Popen[str]:
        """Start it without waiting until it has joined."""
        command = [sys.executable, "-c", USER, str(self.path), code]
        user = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._users.append(user)
        return user

    def client(self, url: str) -> redis.Redis:
        return redis.Redis.from_url(url, decode_responses=True, retry=None)

    def server_pid(self, url: str) -> int:
        with self.client(url) as connection:
            return connection.info("server")["process_id"]

    @property
    def keepers(self) -> list[int]:
        return list(processes("keeper.py", str(self.path)))

    @property
    def keeper(self) -> int:
        (pid,) = self.keepers
        return pid

    @property
    def servers(self) -> list[int]:
        return list(processes("-server", f"unixsocket:{StateDir.of(self.path).socket}"))

    wait_for = staticmethod(wait_for)

    def kill(self, pid: int) -> None:
        """Kill a process and see it gone: only then has the kernel dropped its locks."""
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: pid not in processes(str(self.path)), f"process {pid} gone")

    def wait_gone(self) -> None:
        wait_for(lambda: not processes(str(self.path)), f"all processes of {self.path} gone")

    def end_users(self) -> None:
        for user in self._users:
            if user.poll() is None:
                user.kill()
            user.wait()
            for end in (user.stdin, user.stdout):
                with contextlib.suppress(OSError):
                    end.close()
        self._users.clear()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNNER_REDIS_SERVER", "RUNNER_STATE_DIR", "RUNNER_APPENDFSYNC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNNER_REDIS_GRACE", str(GRACE))


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder with a path short enough for a socket, whatever the base of tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="emb-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_state(short_tmp: Path) -> Iterator[Callable[[str], State]]:
    """Make a state directory by name; when the test is over, nothing may be left running for it."""
    made: list[State] = []

    def make(name: str) -> State:
        made.append(State(short_tmp / name))
        return made[-1]

    yield make
    for state in made:
        state.end_users()
    try:
        for state in made:
            state.wait_gone()
    finally:
        for pid in processes(str(short_tmp)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def state(new_state: Callable[[str], State]) -> State:
    return new_state("state")
