"""Draws the diagrams of docs/internals.md: python ops/docs/diagrams.py --write

The states are drawn from their tables. What goes over the wire for a model call, a commit and a SIGTERM is drawn from
what did: workers, a store behind a proxy that sees each command, and a model server. What a script does is said in the
words at its head. Without ``--write`` nothing is changed, and the exit code is 1 if the page has others.
"""

import argparse
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runner.client import Client
from runner.core.states import RUN_MOVES, TASK_MOVES
from runner.testing import Command, FaultProxy, Fleet, ModelRequest, ModelServer, RedisServer, eventually

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/internals.md"
SCRIPTS = ROOT / "providers/redis/lua"

CREW = """
import os
import time
from pathlib import Path

from runner import LLM, Agent, CheckpointConfig, Crew, Task


def last(ctx):
    for n in range(3):
        ctx.step("work", work, n)
    return "done"


def work(n):
    folder = Path(os.environ["DIAGRAM_FOLDER"])
    (folder / f"at {n}").touch()
    while n == 1 and not (folder / "go on").exists():
        time.sleep(0.01)
    return n


agent = Agent(role="writer", goal="write", llm=LLM("openai/scripted"))
crew = Crew(
    tasks=[
        Task(name="first", description="Say something.", expected_output="a word", agent=agent),
        Task(name="last", run=last),
    ],
    checkpoint=CheckpointConfig(on_events=["task_completed", "SIGTERM"]),
)
"""
SAME = {"HSETNX": "record_own_step", "commit_next": "commit"}
"""Commands that stand for a script: one that does without it, and one that does if the answer of an event has come."""


@dataclass
class Trace:
    """Who said what to whom, in order."""

    lines: list[tuple[str, str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  #: of workers, by their id
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, by: str, to: str, what: str) -> None:
        with self._lock:
            self.lines.append((by, to, what))

    def command(self, command: Command) -> None:
        """Keep what a task asks of the store: scripts. What its worker does meanwhile may come anywhere."""
        who = command.connection.split(":")
        name = SAME.get(command.name, command.name)
        is_of_task = len(who) == 3 and (who[2] == "mark" or who[2][:1].isdigit())
        if is_of_task and name in _said() and name != "take":
            self.add(f"task on {self.names.get(who[1], who[1])}", "store", name)

    def unblocked(self, command: Command) -> None:
        """What a worker that is asked to end tells the server about its own consumer."""
        if command.name == "CLIENT" and command.words[1].upper() == b"UNBLOCK":
            self.add(self.names.get(command.connection.split(":")[1], ""), "store", "CLIENT UNBLOCK")


def _said() -> dict[str, str]:
    """What each script does: the first words at its head."""
    found = {}
    for file in SCRIPTS.glob("*.lua"):
        head = " ".join(line.removeprefix("--").strip() for line in file.read_text().split("\n--\n")[0].splitlines())
        found[file.stem] = re.split(r"[.:,;] ", f"{head} ")[0].rstrip(".")
    return found


def states(moves: Mapping[str, Mapping[str, str]]) -> str:
    """A table of moves."""
    by: dict[tuple[str, str], list[str]] = {}
    for begin, ways in moves.items():
        for move, end in ways.items():
            by.setdefault((str(begin), str(end)), []).append(move)
    lines = [f"    {begin} --> {end}: {', '.join(names)}" for (begin, end), names in by.items()]
    return "\n".join(["stateDiagram-v2", "    direction LR", *lines])


def sequence(lines: list[tuple[str, str, str]]) -> str:
    """What was said, as a diagram."""
    said = _said()
    parties = list(dict.fromkeys(one for by, to, _ in lines for one in (by, to)))
    drawn = ["sequenceDiagram"]
    drawn += [f"    participant {_short(one)} as {one}" for one in parties]
    drawn += [
        f"    {_short(by)}->>{_short(to)}: {what}{f' ({said[what]})' if what in said else ''}" for by, to, what in lines
    ]
    return "\n".join(drawn)


def _short(name: str) -> str:
    return re.sub(r"\W+", "_", name)


@contextmanager
def stage(trace: Trace) -> Iterator[tuple[Client, Fleet, Path]]:
    """A store behind a proxy, a model server, and a client that goes around the proxy."""

    def script(_: ModelRequest) -> str:
        trace.add("task on worker A", "model", "the request")
        return "a word"

    def see(command: Command) -> None:
        trace.unblocked(command)
        trace.command(command)

    with (
        tempfile.TemporaryDirectory() as name,
        RedisServer() as redis,
        FaultProxy(redis, see) as proxy,
        ModelServer(script) as models,
        Client(redis.url) as client,
        Fleet(proxy.url) as fleet,
    ):
        folder = Path(name)
        (folder / "crew.py").write_text(CREW)
        # However slow this machine is, a task continues with the next one.
        fleet.settings = {**models.environment, "DIAGRAM_FOLDER": name, "RUNNER_TIME_SLICE": "600"}
        yield client, fleet, folder


def performed() -> list[tuple[str, str, str]]:
    """What goes over the wire for a run that is handed from one worker to another by a SIGTERM."""
    trace = Trace()
    with stage(trace) as (client, fleet, folder):
        first = fleet.start("--concurrency", "1")
        trace.names[first.about()["id"]] = "worker A"
        (folder / "go on").touch()
        assert (
            client.submit(folder / "crew.py").wait(60).status == "completed"
        )  # now all is loaded, and every script is known
        (folder / "go on").unlink()
        for mark in folder.glob("at *"):
            mark.unlink()
        trace.lines.clear()
        handle = client.submit(folder / "crew.py")
        eventually((folder / "at 1").exists, why="it is at the second step")
        second = fleet.start("--concurrency", "1")
        trace.names[second.about()["id"]] = "worker B"
        trace.add("the deploy", "worker A", "SIGTERM")
        first.terminate()
        eventually(lambda: "mark" in [what for _, _, what in trace.lines], why="it drains")
        (folder / "go on").touch()
        assert handle.wait(60).status == "completed"
    # A script that its server does not know yet is sent once more, whole.
    lines = [line for n, line in enumerate(trace.lines) if n == 0 or line != trace.lines[n - 1]]
    for n in range(1, len(lines)):  # a note is sent before what it is of, and not waited for: it may be seen after it
        if lines[n][2] in ("append_event", "begin_step") and lines[n - 1][1] == "model":
            lines[n - 1], lines[n] = lines[n], lines[n - 1]
    return lines


def drawn() -> dict[str, str]:
    """All diagrams, by name."""
    lines = performed()
    at = [what for _, _, what in lines]
    commit, stop = at.index("commit"), at.index("SIGTERM")
    end = at.index("commit", stop) + 1  # what a worker asks for after that, it asks at some time
    return {
        "states of a task": states(TASK_MOVES),
        "states of a run": states(RUN_MOVES),
        "a model call": sequence(lines[at.index("claim") : commit]),
        "a commit": sequence(lines[commit : commit + 2]),
        "a SIGTERM": sequence(lines[stop:end]),
    }


def put(page: str, diagrams: Mapping[str, str]) -> str:
    """The page with these diagrams where it names them."""
    for name, text in diagrams.items():
        place = re.compile(rf"(<!-- drawn: {re.escape(name)} -->\n```mermaid\n).*?(\n```)", re.DOTALL)
        page, found = place.subn(lambda match, text=text: f"{match[1]}{text}{match[2]}", page)
        assert found == 1, f"the page has {found} places for {name}"
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="change the page")
    given = parser.parse_args()
    before = PAGE.read_text()
    after = put(before, drawn())
    if given.write:
        PAGE.write_text(after)
    elif after != before:
        print(f"{PAGE.relative_to(ROOT)} has others: python ops/docs/diagrams.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
