"""``runner checkpoint`` in a real terminal: the command, its screen, what it leaves."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.bundles.loader import load_target
from runner.bundles.target import parse_target
from runner.providers.config import CheckpointConfig
from runner.testing import fleet as testing_fleet

CREW = """
    from pathlib import Path
    from runner import CheckpointConfig, Crew, Task

    def write(ctx):
        if Path(__file__).with_name("broken").exists():
            raise LookupError("no ink")
        return "the end"

    crew = Crew(name="tale", tasks=[Task(name="begin", run=lambda ctx: "once"), Task(name="write", run=write)])
"""


class Terminal:
    """A command on a terminal of 80 by 24."""

    def __init__(self, arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.seen = ""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = testing_fleet.launch(
            [sys.executable, "-m", "runner", *arguments],
            stdin=slave, stdout=slave, stderr=slave, cwd=folder, start_new_session=True,
            env={**environment, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        )  # fmt: skip
        os.close(slave)

    def expect(self, *texts: str, within: float = 30.0) -> None:
        """Until all of these have been written."""
        end = time.monotonic() + within
        while not all(text in self.plain for text in texts):
            if time.monotonic() > end or not self._read():
                pytest.fail(f"never seen: {[t for t in texts if t not in self.plain]}; seen: {self.plain[-3000:]}")

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], 0.1)
        if not ready:
            return True
        with contextlib.suppress(OSError):  # the other end is closed
            data = os.read(self.master, 65536)
            self.seen += data.decode(errors="replace")
            return bool(data)
        return False

    @property
    def plain(self) -> str:
        """What was written, without colours; a jump of the cursor is a blank."""
        return re.sub(r"\x1b\[[0-9;?<>=]*m", "", re.sub(r"\x1b\[[0-9;]*H", " ", self.seen))

    def press(self, keys: str) -> None:
        """Type; what was seen before counts no more."""
        self.seen = ""
        os.write(self.master, keys.encode())

    def end(self) -> int:
        """Until it ends by itself. Gives the exit code."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        while self._read() and select.select([self.master], [], [], 0.1)[0]:
            pass
        assert self.process.returncode is not None, self.plain[-3000:]
        return self.process.returncode


@pytest.fixture
def terminal(fleet, tmp_path) -> Iterator:
    """Starts `runner` on a terminal."""
    started: list[Terminal] = []

    def start(*arguments: str | Path) -> Terminal:
        started.append(Terminal([str(one) for one in arguments], tmp_path, fleet.environment()))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        os.close(one.master)


@pytest.fixture
def stopped(write_crew, tmp_path) -> Path:
    """A crew file whose kickoff stopped half way, with its checkpoints in `.checkpoints` beside."""
    path = write_crew(CREW)
    broken = path.with_name("broken")
    broken.touch()
    crew = load_target(parse_target(str(path))).crew
    crew.checkpoint = CheckpointConfig(location=str(tmp_path / ".checkpoints"))
    with pytest.raises(LookupError):
        crew.kickoff()
    broken.unlink()
    return path


def test_browsing_files_and_resuming_with_the_crew_file(terminal, stopped):
    # Without a place it is ./.checkpoints; without the crew it says what to do
    screen = terminal("checkpoint")
    screen.expect("./.checkpoints (JSON files)", "1 of 2 tasks done", "r Resume", "name their crew: runner checkpoint")
    screen.press("q")
    assert screen.end() == 0
    # With it, what is left is done once the screen is gone, and the result is printed
    screen = terminal("checkpoint", ".checkpoints", "--crew", stopped)
    screen.expect("1 of 2 tasks done", "q Quit")
    screen.press("r")
    screen.expect("What was completed by then is not run again.")
    screen.press("\r")
    assert screen.end() == 0, screen.plain
    assert re.search(r"resume from \d{8}T\d{6}_[0-9a-f]{8} \(main\), in this process\s+the end\s*$", screen.plain)


@pytest.mark.soak
def test_an_order_that_is_refused_keeps_the_browser_open(terminal, stopped, write_crew):
    other = write_crew(CREW.replace('"begin"', '"start"').replace('"write"', '"tell"'), "other")
    screen = terminal("checkpoint", ".checkpoints", "--crew", stopped)
    screen.expect("1 of 2 tasks done", "q Quit")
    screen.press("f")
    screen.expect("branch name")
    screen.press("../../etc\r")
    screen.expect("Branch name escapes checkpoint directory")
    screen.press("q")
    assert screen.end() == 0
    # What only the crew's code tells is said when it is carried out: the screen comes back
    screen = terminal("checkpoint", ".checkpoints", "--crew", other)
    screen.expect("1 of 2 tasks done", "q Quit")
    screen.press("r")
    screen.expect("What was completed by then")
    screen.press("\r")
    screen.expect("the checkpoint is of a crew with the tasks", "q Quit")
    screen.press("q")
    assert screen.end() == 0


@pytest.mark.soak
def test_browsing_a_run_and_pruning_it(terminal, fleet, write_crew):
    fleet.start("--concurrency", "1")
    run = fleet.runner("submit", str(write_crew(CREW)), "--detach").stdout.strip()
    assert fleet.runner("wait", run).returncode == 0
    # Without a place, where there are no files, it is the newest run
    screen = terminal("checkpoint")
    screen.expect(f"run {run}", "2 of 2 tasks done", "completed", "q Quit")
    screen.press("p")
    screen.expect("It holds 2 checkpoints.")
    screen.press("\x7f")
    screen.expect("Enter a number")
    screen.press("1")
    screen.expect("1 would")
    screen.press("\r")
    screen.expect("1 checkpoint of main removed")
    screen.press("q")
    assert screen.end() == 0


def test_what_is_wrong_is_said_before_the_screen_opens(terminal, stopped, fleet, write_crew):
    for arguments, line in (
        (["nowhere/"], "error: there is no directory, file or run nowhere/"),
        (["r-123456789abc"], "error: there is no run r-123456789abc: "),
        ([".checkpoints", "--crew", "nowhere.py"], "error: no such file: nowhere.py"),
        (
            [".checkpoints", "--crew", write_crew("x = 1", "other")],
            "error: crew.py: no crew, flow, agent or graph in it; it defines x (an int)",
        ),
    ):
        screen = terminal("checkpoint", *arguments)
        assert screen.end() == 2, screen.plain
        assert screen.plain.strip().startswith(line)
        assert "Traceback" not in screen.plain
