"""Crews whose steps leave a trace in a file, so that what was done how often can be counted."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.client import Client, RunHandle
from runner.events import PAIRS, VALID_EVENT_PAIRS
from runner.providers.records import Event

LOGGED = """
    import os, time
    from runner import Crew, Process, Task

    def trace(line):
        with open({log!r}, "a") as out:
            out.write(line + chr(10))

    def work(label, i, seconds):
        time.sleep(seconds)
        trace(f"step {{label}} {{i}}")
        return {{"label": label, "i": i, "pid": os.getpid()}}

    def hold(label):
        trace(f"held {{label}}")
        while not (os.path.exists({go!r}) or os.path.exists({go!r} + " " + label)):
            time.sleep(0.01)

    def until(line):
        while not os.path.exists({log!r}) or line not in open({log!r}).read().splitlines():
            time.sleep(0.01)

    def steps(label, n, seconds, held_at=-1):
        def run(ctx):
            trace(f"task {{label}} {{ctx.attempt}}")
            done = []
            for i in range(n):
                if i == held_at:
                    hold(label)
                done.append(str(ctx.step("work", work, label, i, seconds)["i"]))
            return " ".join(done)
        return run
"""


@dataclass
class Trace:
    """What the steps wrote; and the way on for the tasks that are held."""

    path: Path

    def held(self, label: str) -> int:
        """How often a task of this label has come to where it is held."""
        return self.lines().count(f"held {label}")

    def let_go(self, label: str = "") -> None:
        """Nobody is held any more, or nobody of this label."""
        self.path.with_name(f"go {label}".strip()).touch()

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def steps(self) -> Counter[str]:
        return Counter(line for line in self.lines() if line.startswith("step "))

    def repeated(self) -> int:
        """How often a step was done once more than once."""
        return sum(count - 1 for count in self.steps().values())


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(tmp_path / "trace")


@pytest.fixture
def crew_of(write_crew: Callable[..., Path], trace: Trace) -> Callable[[str], Path]:
    """A crew file of the given tasks; ``steps(label, n, seconds)`` is a run of n traced steps.

    ``held_at=i``: before the i-th it is held until the trace lets it go, so that it is in flight, and not in a step;
    as ``hold(label)`` does anywhere. ``until(line)`` waits for a line of the trace.
    """

    def make(tasks: str, name: str = "crew") -> Path:
        head = textwrap.dedent(LOGGED).format(log=str(trace.path), go=str(trace.path.with_name("go")))
        return write_crew(head + "\n" + textwrap.dedent(tasks), name)

    return make


FLOWS = """
from runner.flows import Flow, and_, human_feedback, listen, or_, router, start
from pydantic import BaseModel
"""


@pytest.fixture
def flow_of(crew_of: Callable[[str], Path]) -> Callable[[str], Path]:
    """A file with the given flow; `trace` and `work` are there, too."""
    return lambda text: crew_of(FLOWS + textwrap.dedent(text))


@pytest.fixture
def well_told() -> Callable[[RunHandle], list[Event]]:
    """The events of a completed run: one sequence, each task started once and completed once, all properly nested."""

    def check(handle: RunHandle) -> list[Event]:
        events = list(handle.events())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        by_seq = {event.seq: event for event in events}
        ends = Counter(event.started for event in events if event.started)
        assert set(ends.values()) <= {1}, "a start has one end"
        starts = [event for event in events if event.type in PAIRS]
        assert {start.seq for start in starts} == ends.keys(), "each start has an end, and nothing else has"
        for event in events:
            assert event.parent < event.seq, "nothing happens before what it happens in"
            if event.started:
                start = by_seq[event.started]
                assert VALID_EVENT_PAIRS[event.type] == start.type
                assert event.fields.get("task") == start.fields.get("task")
                assert event.parent == start.parent, "an end stands where its start does"
        ended = {event.started: event.seq for event in events if event.started}
        for event in events:
            if event.parent and event.type != "write_refused":
                assert event.seq < ended[event.parent], "nothing happens in what is over"
        tasks = set(handle.result().outputs)
        for kind in ("task_started", "task_completed"):
            told = Counter(e.fields["task"] for e in events if e.type == kind and "/" not in e.fields["task"])
            assert told == dict.fromkeys(tasks, 1), kind
        return events

    return check


@pytest.fixture
def reconcile(trace: Trace, well_told: Callable[[RunHandle], list[Event]]) -> Callable[[Client, RunHandle], None]:
    """The count at the end of a run: each task committed once, each step paid once but for those in doubt."""

    def check(client: Client, handle: RunHandle) -> None:
        result = handle.result()
        assert result.status == "completed", result
        well_told(handle)
        assert trace.repeated() <= result.ledger["in_doubt"], (
            trace.lines(),
            [(e.type, e.fields) for e in handle.events()],
        )

    return check


@pytest.fixture
def own_client(own_server: object) -> Iterator[Client]:
    """A client on the server that the test may kill."""
    with Client(own_server.url) as one:
        yield one
