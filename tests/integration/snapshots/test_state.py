"""RuntimeState: what it holds, its lineage and its versions, and writing that fails."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runner import Agent, CheckpointConfig, Crew, RuntimeState, Task
from runner.core.errors import BadCheckpoint
from runner.events import (
    CheckpointCompletedEvent,
    CheckpointFailedEvent,
    CheckpointPrunedEvent,
    TaskCompletedEvent,
    event_bus,
)
from runner.providers import CheckpointNotFound, JsonProvider, SqliteProvider
from runner.snapshots import VERSION, prepare_entities


def made() -> Crew:
    agent = Agent(role="r", goal="g", backstory="b", llm="gpt-4o-mini")
    return Crew(name="c", agents=[agent], tasks=[Task(name="a", description="Do {it}.", agent=agent)])


def done(text: str) -> Any:
    return lambda ctx: text


# -- what it holds


def test_the_keys_of_a_checkpoint():
    state = RuntimeState(root=[made()])
    assert state.checkpoint_id is state.parent_id is None
    assert state.branch == "main"
    state.parent_id, state.branch = "before", "experiment"
    data = json.loads(state.model_dump_json())
    assert list(data) == ["crewai_version", "parent_id", "branch", "entities", "event_record"]
    assert (data["crewai_version"], data["parent_id"], data["branch"]) == (VERSION, "before", "experiment")
    assert state.model_dump(mode="json") == data
    assert state.describe("task_failed")["trigger"] == "task_failed"


def test_data_comes_back_as_data():
    crew = made()
    crew.kickoff_event_id = "e-1"
    prepare_entities([crew])
    assert crew.checkpoint_kickoff_event_id == "e-1"
    state = RuntimeState.model_validate_json(RuntimeState(root=[crew]).model_dump_json(), context={})
    [there] = state.root
    assert (there.name, there.id, there.kickoff_event_id) == ("c", crew.id, "e-1")
    assert (there.tasks[0].description, there.tasks[0].id) == ("Do {it}.", crew.tasks[0].id)
    assert there.tasks[0].agent is there.agents[0]
    assert there.agents[0].llm.model == "gpt-4o-mini"
    assert there.is_data


def test_an_entity_is_in_it_once_and_an_agent_of_a_crew_with_its_crew():
    crew, state = made(), RuntimeState(root=[])
    for entity in (crew, crew, crew.agents[0], "a tool", crew.tasks[0]):
        state.register(entity)
    assert [type(one) for one in state.root] == [Crew]


def test_what_is_no_json_is_left_out(place):
    """Somebody's own objects among the inputs, half of an emoji in an output, a number that is none."""
    crew = Crew(
        tasks=[Task(name="a", run=lambda ctx: {"odd": float("nan"), "ok": 1})],
        checkpoint=CheckpointConfig(location=place.location),
    )
    crew.kickoff({"thing": object(), "half": "\ud83d", "n": 1})
    [entity] = place.last["entities"]
    assert entity["checkpoint_inputs"] == {"half": "\ud83d", "n": 1}
    assert entity["tasks"][0]["output"]["json"] == {"odd": None, "ok": 1}


# -- versions


@pytest.mark.parametrize(
    ("version", "level", "says"),
    [("0.1.0", "DEBUG", "Migrating checkpoint from 0.1.0"), (None, "WARNING", "treating as 0.0.0")],
)
def test_older_ones_are_migrated(caplog, version, level, says):
    data = RuntimeState(root=[made()]).model_dump(mode="json")
    data.pop("crewai_version")
    data.pop("branch")
    data["entities"][0].pop("entity_type")
    with caplog.at_level(logging.DEBUG):
        state = RuntimeState.model_validate_json(
            json.dumps(data if version is None else {**data, "crewai_version": version})
        )
    assert [r.levelname for r in caplog.records if says in r.getMessage()] == [level]
    assert state.branch == "main"
    assert isinstance(state.root[0], Crew)


def test_a_newer_one_is_refused():
    data = RuntimeState(root=[made()]).model_dump(mode="json")
    with pytest.raises(BadCheckpoint, match=r"written by version 99\.1, which is newer than 1\.0\.0 here: install"):
        RuntimeState.model_validate({**data, "crewai_version": "99.1"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"crewai_ver', "is torn or not JSON"),
        ("[]", None),
        ("3", "a checkpoint is a JSON object, not an int"),
        ('{"crewai_version": "1.0.0", "entities": [{"entity_type": "robot"}]}', "holds an entity of type 'robot'"),
        ('{"crewai_version": "1.0.0", "entities": [{"entity_type": "agent"}]}', "is inconsistent"),
        ('{"crewai_version": "1.0.0", "entities": [7]}', "is inconsistent"),
    ],
)
def test_what_is_no_checkpoint_is_said_in_a_line(text, says):
    if says is None:
        assert RuntimeState.model_validate_json(text).root == []
        return
    with pytest.raises(BadCheckpoint, match=says) as caught:
        RuntimeState.model_validate_json(text)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


# -- lineage


def test_each_checkpoint_is_the_child_of_the_one_before(place):
    state = RuntimeState(root=[made()])
    first = state.checkpoint(place.location)
    first_id = state.checkpoint_id
    assert first_id == state.provider.extract_id(first) == state.parent_id
    state.checkpoint(place.location)
    assert [data["parent_id"] for data in place.all] == [None, first_id]
    assert [info.parent_id for info in place.infos] == [None, first_id]


def test_the_async_way_is_the_same(database):
    import asyncio

    state = RuntimeState(root=[made()])
    state.provider = SqliteProvider()

    async def twice() -> None:
        await state.acheckpoint(database.location)
        await state.acheckpoint(database.location)
        restored = await RuntimeState.afrom_checkpoint(CheckpointConfig(restore_from=database.at(-1)))
        assert restored.checkpoint_id == state.checkpoint_id

    asyncio.run(twice())
    assert [info.parent_id for info in database.infos] == [None, database.infos[0].id]


def test_a_write_that_is_cancelled_has_failed(place):
    import asyncio

    class Hanging(JsonProvider):
        async def acheckpoint(self, *args: Any, **about: Any) -> str:
            begun.set()
            await asyncio.Event().wait()

    async def cancelled() -> None:
        writing = asyncio.create_task(state.acheckpoint(place.location))
        await begun.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    begun, told, state = asyncio.Event(), [], RuntimeState(root=[made()])
    state.provider = Hanging()
    with event_bus.scoped_handlers():

        @event_bus.on("checkpoint_started", "checkpoint_failed", "checkpoint_completed")
        def tell(source: Any, event: Any) -> None:
            told.append((event.type, getattr(event, "error", "")))

        asyncio.run(cancelled())
        event_bus.flush()
    assert told == [("checkpoint_started", ""), ("checkpoint_failed", "CancelledError")]
    assert state.checkpoint_id is None


def test_a_restored_state_goes_on_under_the_checkpoint(place):
    state = RuntimeState(root=[made()])
    where = state.checkpoint(place.location)
    restored = RuntimeState.from_checkpoint(CheckpointConfig(restore_from=where))
    assert (restored.checkpoint_id, restored.parent_id, restored.branch) == (state.checkpoint_id,) * 2 + ("main",)
    assert restored.restored


def test_branches_of_forks(place):
    state = RuntimeState(root=[made()])
    state.fork()
    assert len(state.branch) == len("fork/12345678")
    first = state.branch
    state.fork()
    assert state.branch != first
    state.checkpoint_id = "20260409T120000_abc12345"
    state.fork()
    assert state.branch.startswith("fork/20260409T120000_abc12345_")
    assert len(state.branch) == len("fork/20260409T120000_abc12345_123456")
    state.fork("mine")
    assert state.branch == "mine"
    with pytest.raises(ValueError, match="escapes checkpoint directory"):
        state.fork("../../etc")
    assert state.branch == "mine"


def test_restore_from_must_be_there(place):
    with pytest.raises(BadCheckpoint, match=r"restore_from must be set"):
        RuntimeState.from_checkpoint(CheckpointConfig())
    with pytest.raises(CheckpointNotFound, match="Checkpoint not found"):
        RuntimeState.from_checkpoint(CheckpointConfig(restore_from=place.location + "/main/x.json"))


# -- writing that fails


class Full(JsonProvider):
    """A disk that is full now and then."""

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        if '"key":"b"' in data and '"output":{"raw":"b"}' in data and '"output":{"raw":"c"}' not in data:
            raise OSError(28, "No space left on device")
        return super().checkpoint(data, location, parent_id=parent_id, branch=branch)


def test_a_write_that_fails_is_said_and_the_run_goes_on(place, caplog):
    told: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on(CheckpointFailedEvent, CheckpointCompletedEvent)(lambda source, event: told.append(event))
        crew = Crew(
            tasks=[Task(name=name, run=done(name)) for name in "abc"],
            checkpoint=CheckpointConfig(location=place.location, provider=Full()),
        )
        assert crew.kickoff().raw == "c"
        event_bus.flush()
    assert [event.type for event in told] == ["checkpoint_completed", "checkpoint_failed", "checkpoint_completed"]
    assert (told[1].error, told[1].task_name, told[1].trigger) == (
        "[Errno 28] No space left on device",
        "b",
        "task_completed",
    )
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line == "no checkpoint was written at task_completed; the run continues: [Errno 28] No space left on device"
    assert [data["parent_id"] for data in place.all] == [None, place.infos[0].id]


def test_a_manual_write_that_fails_raises(place):
    crew = Crew(tasks=[Task(name="b", run=done("b")), Task(name="a", run=done("a"))])
    crew.kickoff()
    state = RuntimeState(root=[crew])
    state.provider = Full()
    with pytest.raises(OSError, match="No space left"):
        state.checkpoint(place.location)
    assert state.checkpoint_id is None


def test_a_panic_of_a_compiled_part_does_not_end_the_run(place, caplog):
    class Panic(BaseException):
        pass

    class Breaks(JsonProvider):
        def checkpoint(self, *_: Any, **__: Any) -> str:
            raise Panic("dictionary changed size")

    settings = CheckpointConfig(location=place.location, provider=Breaks())
    assert Crew(tasks=[Task(name="a", run=done("a"))], checkpoint=settings).kickoff().raw == "a"
    assert "the run continues: dictionary changed size" in caplog.text


def test_old_ones_go_and_pruning_that_fails_is_said(place, caplog):
    told: list[Any] = []

    class Stuck(JsonProvider):
        def prune(self, *_: Any, **__: Any) -> int:
            raise OSError("read-only")

    tasks = [Task(name=f"t{i}", run=done("x")) for i in range(5)]
    with event_bus.scoped_handlers():
        event_bus.on(CheckpointPrunedEvent)(lambda source, event: told.append(event))
        Crew(tasks=tasks, checkpoint=CheckpointConfig(location=place.location, max_checkpoints=2)).kickoff()
        event_bus.flush()
    assert [event.removed_count for event in told] == [0, 0, 1, 1, 1]
    assert len(place.infos) == 2
    settings = CheckpointConfig(location=place.location, max_checkpoints=2, provider=Stuck())
    Crew(tasks=tasks, checkpoint=settings).kickoff()
    assert f"old checkpoints in {place.location} could not be pruned: read-only" in caplog.text
    assert len(place.infos) == 7


def test_two_runs_at_one_place_do_not_prune_each_other(place):
    """Of each other's checkpoints they know nothing, on one branch too, while both are in flight."""
    config = CheckpointConfig(location=place.location, max_checkpoints=2)

    def meanwhile(ctx):
        mine = [info.id for info in place.infos]
        other = Crew(tasks=[Task(name=f"t{i}", run=done("x")) for i in range(5)], checkpoint=config)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other.kickoff).result()
        assert [info.id for info in place.infos][:2] == mine
        return "x"

    tasks = [Task(name=f"t{i}", run=done("x")) for i in range(5)]
    Crew(tasks=[*tasks, Task(name="t5", run=meanwhile)], checkpoint=config).kickoff()
    assert len(place.infos) == 2


def test_events_told_again_write_nothing(place):
    crew = Crew(tasks=[Task(name="a", run=done("a"))], checkpoint=CheckpointConfig(location=place.location))
    state = RuntimeState(root=[crew])
    event_bus.set_runtime_state(state)
    event = TaskCompletedEvent(task=crew.tasks[0], output=None)
    event_bus.replay(crew.tasks[0], event)
    assert place.infos == []
    event_bus.emit(crew.tasks[0], TaskCompletedEvent(task=crew.tasks[0], output=None, parent_event_id="x"))
    assert len(place.infos) == 1


def test_a_model_is_written_down_by_its_name() -> None:
    from runner import Agent, Crew, Task
    from runner.llm.llm import LLM

    agent = Agent(role="r", goal="g", backstory="b", llm=LLM("gpt-4o-mini", api_key="sk-hidden"))
    text = Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)]).model_dump_json()
    assert "gpt-4o-mini" in text
    assert "sk-hidden" not in text


def test_a_version_that_is_none_is_said(caplog: pytest.LogCaptureFixture) -> None:
    RuntimeState.model_validate({"crewai_version": "garbage", "entities": []})
    assert "treating as 0.0.0" in caplog.text
