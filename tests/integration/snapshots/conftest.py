"""Checkpoints of crews and agents in this process."""

import gc
import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner import CheckpointConfig, Crew, Task
from runner.core import live_objects
from runner.events import event_bus, kickoff
from runner.providers import CheckpointInfo, detect_provider


@pytest.fixture(autouse=True)
def own_context() -> Iterator[None]:
    """A test leaves no state in the context of the next, and its crews are no code for it."""
    gc.collect()  # crews and their agents know each other
    kickoff.enter(None)
    yield
    kickoff.enter(None)
    event_bus.flush()


@pytest.fixture
def where(tmp_path: Path) -> str:
    """Where its checkpoints are."""
    return str(tmp_path / "checkpoints")


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, as in another process, whatever keeps a crew alive in this one: as a failed test does."""
    return lambda: monkeypatch.setattr(live_objects, "_living", {})


@dataclass
class Place:
    """Where checkpoints are, and what stands in them."""

    location: str

    @property
    def infos(self) -> list[CheckpointInfo]:
        """All of them, oldest first."""
        return detect_provider(self.location).checkpoints(self.location)

    def read(self, info: CheckpointInfo) -> dict[str, Any]:
        """What one holds."""
        data: dict[str, Any] = json.loads(detect_provider(self.location).from_checkpoint(info.location))
        return data

    @property
    def all(self) -> list[dict[str, Any]]:
        """What they hold, oldest first."""
        return [self.read(info) for info in self.infos]

    @property
    def last(self) -> dict[str, Any]:
        """What the newest holds."""
        return self.read(self.infos[-1])

    def at(self, number: int) -> str:
        """The location of one, as ``restore_from`` takes it."""
        return self.infos[number].location


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder for JSON files."""
    return Place(str(tmp_path / "checkpoints"))


@pytest.fixture
def database(tmp_path: Path) -> Place:
    """An SQLite file."""
    return Place(str(tmp_path / "checkpoints.db"))


@pytest.fixture
def events_of() -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """The recorded events of a checkpoint, in their order."""

    def events(data: dict[str, Any]) -> list[dict[str, Any]]:
        found = [node["event"] for node in data["event_record"]["nodes"].values()]
        return sorted(found, key=lambda event: event["emission_sequence"])

    return events


@pytest.fixture
def pairs_up(events_of: Any) -> Callable[[dict[str, Any]], Counter[tuple[str, str | None]]]:
    """Checks that every start has one end that names it, inside of its parent; gives the count of each event."""

    def check(data: dict[str, Any]) -> Counter[tuple[str, str | None]]:
        events = {event["event_id"]: event for event in events_of(data)}
        ended: Counter[str] = Counter(e["started_event_id"] for e in events.values() if e.get("started_event_id"))
        starts = [e for e in events.values() if e["type"].endswith("_started")]
        assert {e["event_id"]: ended[e["event_id"]] for e in starts} == {e["event_id"]: 1 for e in starts}
        for event in events.values():
            start = events[event["started_event_id"]] if event.get("started_event_id") else None
            if start is not None:
                assert (start.get("parent_event_id"), start.get("task_id")) == (
                    event.get("parent_event_id"),
                    event.get("task_id"),
                ), (start, event)
                assert start["emission_sequence"] < event["emission_sequence"]
        numbers = [event["emission_sequence"] for event in events.values()]
        assert len(set(numbers)) == len(numbers)
        return Counter((event["type"], event.get("task_name")) for event in events.values())

    return check


@pytest.fixture
def kill_often(tmp_path: Path, place: Place, pairs_up: Any) -> Callable[[str, int, int], None]:
    """Kills a crew after a checkpoint or during the next, in each of its lives but the last, and looks at its record.

    Takes the name of the place, the lives, and the steps in each of six tasks side by side.
    """

    def kill(kind: str, lives: int, each: int) -> None:
        place.location = str(tmp_path / kind)
        log = tmp_path / "paid"
        driver = Path(__file__).parent / "killed_often.py"
        said = subprocess.run(
            [sys.executable, driver, place.location, log, str(lives), str(each)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert said.stdout == '"last of 7"\n'
        counted = pairs_up(place.last)
        for name in ["first", *(f"side{i}" for i in range(6)), "last"]:
            assert counted["task_started", name] == counted["task_completed", name] == 1
            assert counted["task_failed", name] == 0
        assert counted["crew_kickoff_started", None] == counted["crew_kickoff_completed", None] == 1
        steps = sum(count for (kind, _), count in counted.items() if kind == "tool_usage_finished")
        assert steps == 2 + 6 * each + 2, "each step is in the record once"
        paid = Counter(log.read_text().splitlines())
        assert len(paid) == steps
        # One of a dying life may be paid and not kept, and at most one in each of the six tasks.
        assert sum(paid.values()) - steps <= 6 * lives

    return kill


@pytest.fixture
def program(tmp_path: Path, processes_are_forked: Any) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts a program with runner imported; its place for checkpoints is ``sys.argv[1]``.

    It is forked, unless ``launch`` says how else it is started: who is to wait for it by its pid is its parent.
    """
    started: list[subprocess.Popen[str]] = []

    def start(
        code: str, *arguments: str, launch: Any = processes_are_forked.popen, **environment: str
    ) -> "subprocess.Popen[str]":
        file = tmp_path / "program.py"
        file.write_text("import warnings; warnings.simplefilter('error')\n" + textwrap.dedent(code))
        process = launch(
            [sys.executable, str(file), *arguments], cwd=tmp_path, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            process_group=0,  # ours may be orphaned, and in an orphaned one Ctrl-Z stops nobody
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


class Dead(Exception):
    """What a task of a `Chain` dies of."""


class Chain:
    """A crew a, b, c, d, each telling that it ran; it may die in one of them."""

    Dead = Dead

    def __init__(self, location: str, **settings: Any) -> None:
        self.config = CheckpointConfig(location=location, **settings)
        self.ran: list[str] = []

    def crew(self, dies_in: str = "", *, names: str = "abcd", side_by_side: str = "", **fields: Any) -> Crew:
        def work(ctx: Any) -> str:
            if ctx.task.name == dies_in:
                raise Dead(dies_in)
            self.ran.append(ctx.task.name)
            return f"{ctx.task.name}({' '.join(o.raw for o in ctx.context)})"

        tasks = [Task(name=name, run=work, async_execution=name in side_by_side) for name in names]
        return Crew(tasks=tasks, **{"checkpoint": self.config, **fields})

    def die(self, where: str, **fields: Any) -> Crew:
        crew = self.crew(where, **fields)
        with pytest.raises(Dead):
            crew.kickoff(fields.pop("inputs", None))
        return crew

    def from_(self, where: str) -> CheckpointConfig:
        return self.config.model_copy(update={"restore_from": where})


@pytest.fixture
def chain(place: Place) -> Chain:
    """A crew that dies where it is told to."""
    return Chain(place.location)
