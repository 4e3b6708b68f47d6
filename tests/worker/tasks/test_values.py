"""What a task returns is what the next one gets, of its type: here, on the fleet, from a checkpoint, and in a fork."""

from pathlib import Path
from typing import Any

import pytest

from runner import CheckpointConfig, Crew, JsonProvider
from runner.bundles import loader
from runner.bundles.target import parse_target
from runner.client import Client
from runner.core.errors import BadInput

pytestmark = pytest.mark.timeout(120)

MODELS = """
    import dataclasses, datetime, enum
    from pydantic import BaseModel

    class Kind(enum.Enum):
        OLD = "old"

    @dataclasses.dataclass
    class Row:
        name: str
        when: datetime.date
        kind: Kind = Kind.OLD

    class Report(BaseModel):
        title: str
        rows: list[Row] = []
"""
CREW = """
    import datetime, decimal, uuid
    import models
    from models import Kind, Report
    from runner import Crew, Process, Task

    NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    ROW = models.Row("a", NOON.date())
    VALUES = {
        "number": 42, "half": 0.5, "yes": True, "nothing": None, "text": "42", "list": [1, "a", None], "empty": {},
        "tuple": (1, (2,)), "set": {1, 2}, "bytes": b"\\xff\\x00", "date": NOON.date(), "moment": NOON,
        "span": NOON - NOON, "money": decimal.Decimal("1.10"), "id": uuid.UUID(int=1), "kind": Kind.OLD, "row": ROW,
        "keys": {1: "a", (2, 3): NOON}, "report": Report(title="t", rows=[ROW]),
        "many": {"all": [Report(title="u"), (NOON, ROW)]},
    }

    def gives(value):
        return lambda ctx: value

    def told(ctx):
        got = {name: ctx.outputs[name].value for name in VALUES}
        wrong = [f"{n}: {one!r}" for n, one in got.items() if (type(one), one) != (type(VALUES[n]), VALUES[n])]
        return "; ".join(wrong) or f"right {ctx.outputs['number'].value!r} {ctx.outputs['date'].value!r}"

    first = [Task(name=name, run=gives(value), context=[]) for name, value in VALUES.items()]
    crew = Crew(process=Process.graph, tasks=[*first, Task(name="told", run=told, context=first)])
    bad = Crew(tasks=[Task(name="opens", run=lambda ctx: open(__file__)), Task(name="next", run=gives(1))])
"""
RIGHT = "right 42 datetime.date(2026, 1, 2)"


@pytest.fixture
def crew_file(write_crew: Any) -> Path:
    path: Path = write_crew(CREW, models__py=MODELS)
    return path


@pytest.fixture
def crew(crew_file: Path) -> Any:
    """The crew, in this process."""
    module = loader.load_target(parse_target(f"{crew_file}:crew"))
    yield module.crew
    loader.unload(loader.key_of(crew_file.parent))


def test_every_value_comes_as_it_was_here_and_on_the_fleet(
    fleet: Any, client: Client, crew_file: Path, crew: Crew
) -> None:
    fleet.start("--concurrency", "2")
    assert crew.kickoff().raw == RIGHT
    assert client.submit(f"{crew_file}:crew").wait(timeout=60).result == RIGHT


def test_what_cannot_be_carried_is_refused_when_it_is_returned(fleet: Any, client: Client, crew_file: Path) -> None:
    fleet.start("--concurrency", "1")
    run = client.submit(f"{crew_file}:bad")
    result = run.wait(timeout=60)
    says = "task 'opens' returned a TextIOWrapper, which cannot be passed to the next task unchanged: return text, "
    assert result.status == "failed"
    assert str(result.error).removeprefix("task 'opens': ").startswith(says)
    assert "next" not in result.outputs


def test_a_fork_with_an_edit_has_it_of_the_type_that_stood_there(fleet: Any, client: Client, crew_file: Path) -> None:
    fleet.start("--concurrency", "2")
    run = client.submit(f"{crew_file}:crew")
    run.wait(timeout=60)
    edits = {"number": "43", "date": "2027-03-04", "tuple": "[2, [3]]"}
    fork = client.fork(run.id, edits=edits)
    assert fork.wait(timeout=60).result == "number: 43; tuple: (2, (3,)); date: datetime.date(2027, 3, 4)"
    for name, edit in {"number": "many", "date": "soon", "moment": '"noon"', "list": "{}", "id": "7"}.items():
        with pytest.raises(BadInput, match=f"^the output of task '{name}' is "):
            client.fork(run.id, edits={name: edit})


def test_a_checkpoint_has_every_value(crew: Crew, tmp_path: Path) -> None:
    crew.checkpoint = CheckpointConfig(location=str(tmp_path / "kept"), on_events=["task_completed"])
    crew.kickoff()
    infos = JsonProvider().checkpoints(str(tmp_path / "kept"))
    assert crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=infos[-2].location)).raw == RIGHT
    edited = Crew.fork(CheckpointConfig(restore_from=infos[-1].location))
    assert [one.output.value for one in edited.tasks[:-1]] == [one.output.value for one in crew.tasks[:-1]]
    edited.by_key["number"].output.raw = "44"
    assert edited.kickoff().raw == "number: 44"
