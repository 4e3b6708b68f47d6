"""A page of the documents, as its reader follows it: files to write, commands to type, output to expect."""

import contextlib
import fcntl
import importlib.util
import os
import pty
import queue
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FORKED = Path(__file__).resolve().parents[1] / "support" / "forked.py"
FOLLOWED = ("agents.md", "checkpointing.md", "flows.md")
TYPED = ("python", "sh", "console")
#: Sections that start many processes, for what the others start as well: they are followed in the soak.
LONG = (
    *("Fork and compare on the fleet", "Have a person approve an output", "Use the tools of an MCP server"),
    *("Write a provider of your own", "Write one when the process is asked to end"),
)
BROWSER = re.compile(r"runner checkpoint (?!list|show|diff|prune)")
REDIS = "redis://localhost:6379"
WAIT = "time.sleep(2)"
#: Seconds for a command. The suite of a provider needs 16 of the processor's and syncs hundreds of files: 9 s alone,
#: and more than 90 among seven other processes of the soak.
WITHIN = 240.0
CREWAI = {
    "__init__.py": "from runner import CheckpointConfig",
    "state/provider/json_provider.py": "from runner.providers import JsonProvider",
}

_FENCE = re.compile(r"^```(?P<kind>\w*)[^`]*$")
_FILE = re.compile(r"# (\S+\.py)\n")
_HEADING = re.compile(r"^(?P<level>#{2,3}) (?P<title>.+)$")


@dataclass
class Block:
    """A fenced block, the line it begins in, and the output that is shown below it."""

    kind: str
    text: str
    line: int
    shown: str | None = None


@dataclass
class Section:
    """The blocks under a heading, which are typed into one terminal."""

    part: str
    title: str
    blocks: list[Block] = field(default_factory=list)


def read(page: Path) -> Iterator[tuple[str, str, Block]]:
    """Each block with the part and the section that it is in."""
    part = section = ""
    kind, begun, lines = None, 0, list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if kind is None:
            if heading := _HEADING.match(line):
                part, section = (heading["title"], "") if heading["level"] == "##" else (part, heading["title"])
            elif fence:
                kind, begun, lines = fence["kind"], number, []
        elif line == "```":
            yield part, section, Block(kind, "".join(f"{one}\n" for one in lines), begun)
            kind = None
        else:
            lines.append(line)
    assert kind is None, f"{page}: the block of line {begun} has no end"


class Terminal:
    """bash, as somebody sits before it: one after the other, each command has ended when the next one is typed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        commands, self._keyboard = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", f"/dev/fd/{commands}"],
            pass_fds=[commands], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=folder, env=environment, start_new_session=True, text=True, errors="replace",
        )  # fmt: skip
        os.close(commands)
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # a process of another group still had it as it was closed here
            for line in self._process.stdout:
                self._said.put(line)
        self._said.put(None)

    def type(self, command: str, within: float = WITHIN) -> tuple[str, int]:
        """What a command prints, and its exit code. What a job in the background prints comes with the next one."""
        # The mark leaves $? and $! as they are.
        os.write(self._keyboard, f"{command}\n_rc=$?; printf '\\n=====%s=====\\n' $_rc; (exit $_rc)\n".encode())
        said, end = "", time.monotonic() + within
        while True:
            try:
                line = self._said.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"not within {within:g} s: {command}\nit said:\n{said}", pytrace=False)
            if line is None:
                return said, self._process.wait(10)
            if found := re.fullmatch(r"=====(\d+)=====\n", line):
                return said.removesuffix("\n"), int(found[1])
            # bash tells of a job that was killed in a way of its own, which is not the same in every shell.
            if not re.match(r"/dev/fd/\d+: line \d+: +\d+ (Killed|Terminated|Hangup)\b", line):
                said += line

    def close(self) -> None:
        """End all that was started from here."""
        os.close(self._keyboard)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._listener.join(5)  # it reads to the end, which has come with the last of them
        with self._process:
            pass


_ID = r"\d{8}T\d{6}_[0-9a-f]{8}"
#: What is another one each time. The first group's are names: they are learned, and the same again later.
_VARIES = re.compile(
    rf"(?P<name>{_ID}(?:_[0-9a-f]{{6}})?|\br-[0-9a-f]{{12}}\b|\b[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\b)"
    r"|(?P<any>\d+(?:\.\d+)? (?:B|KB|MB|ms|s)\b|\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b|\.\.\.)"
    r"|(?P<space> {2,})"
)
_ALIKE = {
    r"\d+(?:\.\d+)? (?:B|KB|MB)": r"\d+(?:\.\d+)? (?:B|KB|MB)",
    r"\d+(?:\.\d+)? (?:ms|s)": r"\d+(?:\.\d+)? (?:ms|s)",
    r"\d{4}-\d\d-\d\d": r"\d{4}-\d\d-\d\d",
    r"\d\d:\d\d:\d\d": r"\d\d:\d\d:\d\d",
    r"\.\.\.": ".*",
}


class Names:
    """Ids differ each time: those on the page stand for those that came here, from where they are first shown."""

    def __init__(self) -> None:
        self._here: dict[str, str] = {}

    def put_in(self, text: str) -> str:
        """The page's ids replaced by ours; the part after an id's underscore too, which people copy."""
        for on_page, here in sorted(self._here.items(), key=lambda item: -len(item[0])):
            text = text.replace(on_page, here)
        return text

    def match(self, shown: str, said: str) -> bool:
        """Whether what was said is what the page shows. ``...`` is anything; on a line alone, any lines."""
        pattern, learned = "", list[str]()
        for line in shown.rstrip().splitlines():
            pattern += r"(?:.*\n)*?" if line.strip() == "..." else self._line(line.rstrip(), learned) + r"[ \t]*\n"
        found = re.fullmatch(pattern, said.rstrip() + "\n" if said.strip() else "")
        if found is None:
            return False
        for number, on_page in enumerate(learned):
            here = found[f"n{number}"]
            self._here[on_page] = here
            for one, other in zip(on_page.split("_")[1:2], here.split("_")[1:2], strict=True):
                self._here[one] = other
        return True

    def _line(self, line: str, learned: list[str]) -> str:
        pattern, at = "", 0
        for found in _VARIES.finditer(line):
            pattern += re.escape(line[at : found.start()])
            at, text = found.end(), found[0]
            if found["name"] in self._here:
                pattern += re.escape(self._here[text])
            elif found["name"] in learned:
                pattern += f"(?P=n{learned.index(text)})"
            elif found["name"]:
                pattern += f"(?P<n{len(learned)}>{_ID if re.fullmatch(_ID, text) else r'[0-9a-zA-Z_-]+'})"
                learned.append(text)
            elif found["space"]:
                pattern += r"[ \t]+"
            else:
                pattern += next(alike for kind, alike in _ALIKE.items() if re.fullmatch(kind, text))
        return pattern + re.escape(line[at:])


class Reader:
    """Does what a section says, in a folder and a terminal of its own, and compares what comes with what is shown.

    With a `ForkServer` its commands are forked there. Without one each is started, as is one that a page kills: else
    something of it might go on for a moment.
    """

    python = sys.executable
    commands = {"python": "", "runner": "-m runner"}

    def __init__(self, page: Path, folder: Path, replace: dict[str, str], forks: Any = None) -> None:
        self.forks = forks
        self._page, self._folder, self._replace = page, folder, replace
        self._names = Names()
        self._scratch = Path(tempfile.mkdtemp(prefix="rd-"))  # sockets want short paths
        self._terminal = Terminal(folder, self._environment())

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER_", "PYTEST_"))}
        as_started = {**kept, "TZ": "UTC", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        path = [self._commands(as_started), sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
        return {
            **kept,
            "PATH": os.pathsep.join([*path, kept["PATH"]]),
            "PYTHONPATH": os.pathsep.join(filter(None, [kept.get("PYTHONPATH"), self._stand_ins()])),
            "HOME": str(self._scratch),
            "COLUMNS": "120",
            "TZ": "UTC",
            "PYTHONUNBUFFERED": "1",  # as in a terminal, so that what was printed before a kill is there
            "PYTHONDONTWRITEBYTECODE": "1",  # a file is written anew within the second
            "RUNNER_STATE_DIR": str(self._scratch / "s"),
            "RUNNER_CACHE_DIR": str(self._scratch / "c"),
        }

    def _commands(self, environment: dict[str, str]) -> str:
        """A folder with its commands, as scripts."""
        folder = self._scratch / "bin"
        folder.mkdir(exist_ok=True)
        if self.forks is not None:
            server = self.forks.path(self.python, environment)
            python = f"{sys.executable} -IS {FORKED} {server}"
        elif self.python != sys.executable:
            python = self.python
        else:
            return str(folder)  # those that are installed
        for name, what in self.commands.items():
            (folder / name).write_text(f'#!/bin/sh\nexec {python} {what} "$@"\n')
            (folder / name).chmod(0o755)
        return str(folder)

    def _stand_ins(self) -> str:
        """CrewAI is a gigabyte and no dependency: where it is not installed, imports of it find this."""
        if importlib.util.find_spec("crewai") is not None:
            return ""
        for module, line in CREWAI.items():
            file = self._scratch / "crewai" / module
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{line}\n")
        return str(self._scratch)

    def follow(self, block: Block) -> None:
        """Do what a block says. Fails the test with what came instead."""
        text = block.text
        for before, after in self._replace.items():
            text = text.replace(before, after)
        if block.kind == "console":
            self._converse(block, text)
            return
        text = self._names.put_in(text)
        if block.kind == "python" and (name := _FILE.match(text)):
            (self._folder / name[1]).write_text(text, "utf-8")
        elif block.kind == "python":
            (self._folder / "snippet.py").write_text(text, "utf-8")
            self._expect(block, *self._terminal.type("python snippet.py"), block.shown)
        else:
            self._expect(block, *self._terminal.type(f"set -e\n{text}set +e"), block.shown)

    def _converse(self, block: Block, text: str) -> None:
        turns = [turn.partition("\n") for turn in re.split(r"(?m)^\$ ", text)[1:]]
        for number, (command, _, shown) in enumerate(turns):
            typed = self._names.put_in(command)
            said, code = self._browse(typed) if BROWSER.match(command) else self._terminal.type(typed)
            follows = turns[number + 1][0] if number + 1 < len(turns) else ""
            refused = shown.startswith("error:") or "$?" in follows
            self._expect(block, said, 0 if refused and code else code, shown, command)

    def _browse(self, command: str) -> tuple[str, int]:
        """Open the browser on a screen of its own, see that something is on it, and leave by its key."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 32, 100, 0, 0))
        process = subprocess.Popen(
            ["bash", "-c", command], stdin=slave, stdout=slave, stderr=slave, cwd=self._folder, start_new_session=True,
            env={**self._environment(), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "32"},
        )  # fmt: skip
        os.close(slave)
        seen, asked, end = b"", False, time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            if select.select([master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):  # it closed its end
                    seen += os.read(master, 65536)
            if not asked and b"main" in seen and b"Quit" in seen:
                asked = bool(os.write(master, b"q"))
        process.kill()
        os.close(master)
        return "" if asked else seen.decode(errors="replace"), process.wait(10)

    def _expect(self, block: Block, said: str, code: int, shown: str | None, command: str = "") -> None:
        where = f"{self._page.name}:{block.line}: {command or block.kind}"
        if code:
            pytest.fail(f"{where}\nfailed with exit code {code}, and said\n{said}", pytrace=False)
        if shown is not None and not self._names.match(shown, said):
            pytest.fail(f"{where}\nthe page shows\n{self._names.put_in(shown)}\nand it said\n{said}", pytrace=False)

    def close(self) -> None:
        """End what was started, here and in the background; one may start another one meanwhile."""
        self._terminal.close()
        end = time.monotonic() + 20
        while (left := self._processes()) and time.monotonic() < end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        shutil.rmtree(self._scratch, ignore_errors=True)
        assert left == []

    def _processes(self) -> list[int]:
        """Those that know our folder."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                known = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                if str(self._scratch).encode() in known and "Z" not in (folder / "stat").read_text().rpartition(")")[2]:
                    found.append(int(folder.name))
        return found


def sections(page: Path) -> list[Section]:
    """The page's sections that have something to type, in order. ``text`` is what the block before it prints."""
    found: dict[tuple[str, str], Section] = {}
    before: Block | None = None
    for part, title, block in read(page):
        if block.kind in TYPED:
            section = found.setdefault((part, title), Section(part, title))
            section.blocks.append(block)
        elif block.kind == "text":
            assert before is not None, f"{page}:{block.line}: the output of what?"
            assert before.kind in ("python", "sh"), f"{page}:{block.line}: the output of what?"
            before.shown = block.text
        before = block
    return list(found.values())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each section of each page that is followed."""
    if "section" in metafunc.fixturenames:
        found = [(DOCS / page, section) for page in FOLLOWED for section in sections(DOCS / page)]
        assert {section.title for _, section in found} >= {*LONG}
        metafunc.parametrize(
            ("page", "section"),
            [
                pytest.param(
                    page, section, id=f"{page.stem}: {section.title or section.part}",
                    marks=[pytest.mark.soak] if section.title in LONG else [],
                )
                for page, section in found
            ],
        )  # fmt: skip


@pytest.fixture
def follow(
    tmp_path: Path, request: pytest.FixtureRequest, processes_are_forked: Any
) -> Iterator[Callable[[Path, list[Block]], None]]:
    """Follows blocks of a page, in an empty folder."""
    readers = []

    def run(page: Path, blocks: list[Block]) -> None:
        folder = tmp_path / "here"
        folder.mkdir()
        # Nobody watches the waits that stand for work, unless something is to be killed meanwhile.
        is_killed = any("kill" in block.text for block in blocks)
        replace = {} if is_killed else {WAIT: "time.sleep(0.01)"}
        if any(REDIS in block.text for block in blocks):
            replace[REDIS] = _own_redis(request.getfixturevalue("own_server"))
        readers.append(Reader(page, folder, replace, None if is_killed else processes_are_forked))
        for block in blocks:
            readers[-1].follow(block)

    yield run
    for reader in readers:
        reader.close()


def _own_redis(server: Any) -> str:
    """The reader's own Redis is where the page says; ours is at another port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server.kill()
    server.arguments = ("--port", str(port))
    server.start()
    return f"redis://localhost:{port}"


@pytest.fixture
def files_of() -> Callable[[Path, str], list[Block]]:
    """The files that a part of a page has its reader write."""

    def find(page: Path, part: str) -> list[Block]:
        blocks = [block for section in sections(page) if section.part == part for block in section.blocks]
        return [block for block in blocks if block.kind == "python" and _FILE.match(block.text)]

    return find


@pytest.fixture
def sections_of() -> Callable[[Path], list[Section]]:
    """`sections`, for test files (which cannot import this one)."""
    return sections
