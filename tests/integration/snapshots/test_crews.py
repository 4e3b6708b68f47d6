"""Crews that go on from checkpoints, and forks of them."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from runner import Agent, CheckpointConfig, Crew, Process, RuntimeState, Task
from runner.core.errors import BadCheckpoint, BadCrew, BadInput
from runner.events import TaskStartedEvent, event_bus
from runner.providers import CheckpointNotFound, JsonProvider, SqliteProvider


def done(text: str) -> Any:
    return lambda ctx: text


# -- going on


def test_what_is_done_is_not_done_again_and_the_rest_sees_the_same_outputs(chain, place):
    chain.die("c")
    assert chain.ran == ["a", "b"]
    chain.ran.clear()
    result = chain.crew().kickoff(from_checkpoint=chain.from_(place.at(-1)))
    assert chain.ran == ["c", "d"]
    assert result.raw == "d(a() b(a()) c(a() b(a())))"
    assert [o.name for o in result.tasks_output] == list("abcd")


def test_from_an_earlier_checkpoint_more_is_done(chain, place):
    chain.crew().kickoff()
    chain.ran.clear()
    chain.crew().kickoff(from_checkpoint=chain.from_(place.at(0)))
    assert chain.ran == ["b", "c", "d"]


def test_each_task_is_skipped_by_its_own_output_not_all_before_a_gap(chain, place):
    """The first of two that ran side by side failed: the second's output counts."""
    chain.die("b", side_by_side="bc")
    assert sorted(chain.ran) == ["a", "c"]
    chain.ran.clear()
    chain.crew(side_by_side="bc").kickoff(from_checkpoint=chain.from_(place.at(-1)))
    assert chain.ran == ["b", "d"]


def test_a_crew_that_is_done_runs_nothing(chain, place):
    chain.crew().kickoff()
    chain.ran.clear()
    assert chain.crew().kickoff(from_checkpoint=chain.from_(place.at(-1))).raw.startswith("d(a()")
    assert chain.ran == []


def test_a_second_kickoff_of_a_restored_crew_begins_anew(chain, place):
    chain.die("d")
    crew = chain.crew()
    restored = Crew.from_checkpoint(chain.from_(place.at(-1)), code=crew)
    chain.ran.clear()
    restored.kickoff()
    assert chain.ran == ["d"]
    restored.kickoff()
    assert chain.ran == ["d", "a", "b", "c", "d"]
    parents = [data["parent_id"] for data in place.all]
    assert parents[4] is None, "a line of its own"


def test_the_newest_of_a_place_is_taken(chain, place, caplog):
    chain.die("d")
    with Path(place.at(-1)).open("r+") as file:
        file.truncate(100)
    chain.ran.clear()
    chain.crew().kickoff(from_checkpoint=chain.from_(place.location))
    assert chain.ran == ["c", "d"], "the torn one is passed over"
    assert "is torn" in caplog.text


def test_a_run_that_goes_on_from_where_it_writes_begins_where_nothing_is(chain, place):
    """One line in the program: the first start begins, and the next one goes on."""
    config = chain.from_(place.location)
    with pytest.raises(chain.Dead):
        chain.crew("c", checkpoint=None).kickoff(from_checkpoint=config)
    assert chain.crew(checkpoint=None).kickoff(from_checkpoint=config).raw.startswith("d(")
    assert chain.ran == list("abcd")
    with pytest.raises(CheckpointNotFound):
        chain.crew().kickoff(from_checkpoint=chain.from_(place.location + "-mistyped"))


@pytest.mark.parametrize("process", [Process.sequential, Process.graph])
def test_a_crew_whose_own_config_says_so_is_found_and_resumed_by_the_next_start(chain, place, process):
    """Opt-in: unfinished work is gone on with; finished work, or none, is begun anew."""
    own = chain.from_(place.location)
    with pytest.raises(chain.Dead):
        chain.crew("c", checkpoint=own, side_by_side="abcd", process=process).kickoff()
    before = len(chain.ran)
    crew = chain.crew(checkpoint=own, process=process)
    crew.kickoff()
    assert sorted(chain.ran) == list("abcd")
    assert before < 4
    chain.ran.clear()
    crew.kickoff()
    chain.crew(checkpoint=own, process=process).kickoff()
    assert sorted(chain.ran) == sorted("abcd" * 2)


def test_from_a_database_without_its_suffix(chain, tmp_path):
    location = str(tmp_path / "runs")
    chain.config = CheckpointConfig(location=location, provider=SqliteProvider())
    chain.die("c")
    chain.crew().kickoff(from_checkpoint=chain.from_(location))
    assert chain.ran == list("abcd")
    restored = Crew.from_checkpoint(CheckpointConfig(restore_from=location + ".db"), code=chain.crew())
    assert restored.checkpoint == CheckpointConfig(location=location + ".db", provider=SqliteProvider())


def test_without_a_place_of_its_own_it_goes_on_writing_where_it_was(chain, place):
    chain.die("c")
    chain.crew(checkpoint=None).kickoff(from_checkpoint=CheckpointConfig(restore_from=place.at(-1)))
    assert len(place.infos) == 4
    assert [data["parent_id"] for data in place.all] == [None, *(info.id for info in place.infos[:-1])]


def test_the_config_without_a_restore_from_is_the_crews_from_now_on(chain, place):
    crew = chain.crew(checkpoint=None)
    crew.kickoff(from_checkpoint=chain.config)
    assert crew.checkpoint == chain.config
    assert len(place.infos) == 4


def test_inputs_of_then_and_of_now(chain, place):
    def crew(*, dies: bool) -> Crew:
        def work(ctx: Any) -> str:
            if dies:
                raise chain.Dead
            return f"{ctx.inputs['topic']} {ctx.inputs['n']} {ctx.inputs['made']}"

        return Crew(
            tasks=[Task(name="a", description="On {topic}", run=done("a")), Task(name="b", run=work)],
            before_kickoff_callbacks=[lambda inputs: chain.ran.append("before") or {**inputs, "made": len(chain.ran)}],
            checkpoint=chain.config,
        )

    with pytest.raises(chain.Dead):
        crew(dies=True).kickoff({"topic": "owls", "n": 1})
    restored = chain.from_(place.at(-1))
    assert crew(dies=False).kickoff(from_checkpoint=restored).raw == "owls 1 1"
    assert crew(dies=False).kickoff({"n": 2}, from_checkpoint=restored).raw == "owls 2 1"
    assert chain.ran == ["before"], "what came before the kickoff is not done twice"


def test_an_input_that_no_checkpoint_can_hold_is_asked_for_again(place, chain):
    def crew(*, dies: bool) -> Crew:
        return Crew(
            tasks=[
                Task(name="a", run=done("a")),
                Task(name="b", description="With {tool}", run=lambda ctx: 1 / (0 if dies else 1)),
            ],
            checkpoint=chain.config,
        )

    with pytest.raises(ZeroDivisionError):
        crew(dies=True).kickoff({"tool": object()})
    with pytest.raises(BadInput, match="needs the input 'tool'"):
        crew(dies=False).kickoff(from_checkpoint=chain.from_(place.at(-1)))
    assert crew(dies=False).kickoff({"tool": "x"}, from_checkpoint=chain.from_(place.at(-1))).raw == "1.0"


def test_models_of_outputs_come_from_the_code(place, chain):
    class Fruit(BaseModel):
        name: str

    def crew(*, dies: bool) -> Crew:
        def eat(ctx: Any) -> str:
            if dies:
                raise chain.Dead
            return ctx.context[0].pydantic.name

        tasks = [Task(name="a", run=done('{"name": "fig"}'), output_pydantic=Fruit), Task(name="b", run=eat)]
        return Crew(tasks=tasks, checkpoint=chain.config)

    with pytest.raises(chain.Dead):
        crew(dies=True).kickoff()
    result = crew(dies=False).kickoff(from_checkpoint=chain.from_(place.at(-1)))
    assert result.raw == "fig"
    assert result.tasks_output[0].pydantic == Fruit(name="fig")


def test_the_living_crews_tasks_have_the_outputs_too(chain, place):
    chain.die("c")
    crew = chain.crew()
    crew.kickoff(from_checkpoint=chain.from_(place.at(-1)))
    assert [task.output.raw[0] for task in crew.tasks] == list("abcd")


def test_awaited(chain, place):
    crew = chain.crew("c")

    async def both() -> None:
        with pytest.raises(chain.Dead):
            await crew.kickoff_async()
        await chain.crew().akickoff(from_checkpoint=chain.from_(place.at(-1)))

    asyncio.run(both())
    assert chain.ran == list("abcd")


def test_two_kickoffs_of_one_crew_at_once_know_nothing_of_each_other(place):
    meet = threading.Barrier(2, timeout=30)

    def work(ctx: Any) -> str:
        meet.wait()
        return f"{ctx.task.name} {ctx.inputs['n']}"

    crew = Crew(
        tasks=[Task(name=name, run=work) for name in "abc"], checkpoint=CheckpointConfig(location=place.location)
    )
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda n: crew.kickoff({"n": n}), (1, 2)))
    assert [[o.raw for o in r.tasks_output] for r in results] == [[f"{x} {n}" for x in "abc"] for n in (1, 2)]
    assert len(place.infos) == 6
    for data in place.all:
        n = data["entities"][0]["checkpoint_inputs"]["n"]
        outputs = [t["output"]["raw"] for t in data["entities"][0]["tasks"] if t["output"]]
        assert outputs == [f"{x} {n}" for x in "abc"][: len(outputs)]
        assert sum(node["event"]["type"] == "task_completed" for node in data["event_record"]["nodes"].values()) == len(
            outputs
        )


def test_a_state_that_was_restored_for_another_crew_is_not_used(chain, place):
    chain.die("c")
    Crew.from_checkpoint(chain.from_(place.at(-1)), code=chain.crew())
    other = Crew(name="other", tasks=[Task(name="x", run=done("x"))], checkpoint=chain.config)
    other.kickoff()
    assert [e["name"] for e in place.last["entities"]] == ["other"]
    assert place.last["parent_id"] is None


def test_a_state_that_was_set_is_used(place):
    crew = Crew(tasks=[Task(name="x", run=done("x"))])
    state = RuntimeState(root=[crew])
    event_bus.set_runtime_state(state)
    crew.kickoff()
    state.checkpoint(place.location)
    assert place.last["entities"][0]["tasks"][0]["output"] == {"raw": "x"}
    assert len(place.last["event_record"]["nodes"]) == 4


# -- events


def test_a_resumed_task_has_no_second_start(chain, place, pairs_up):
    """Also of two in flight side by side, each in a context of its own."""
    meet = threading.Barrier(2, timeout=30)

    def crew(*, dies: bool) -> Crew:
        def work(ctx: Any) -> str:
            if dies and ctx.task.name in "cd":
                meet.wait()
                raise chain.Dead
            return ctx.task.name

        tasks = [Task(name=name, run=work, async_execution=name in "cd") for name in "abcde"]
        return Crew(tasks=tasks, checkpoint=CheckpointConfig(location=place.location, on_events=["*"]))

    with pytest.raises(chain.Dead):
        crew(dies=True).kickoff()
    both = next(i.location for i in place.infos if open_tasks(place.read(i)) == {"c", "d"})
    told: list[str] = []
    with event_bus.scoped_handlers():
        event_bus.on(TaskStartedEvent)(lambda source, event: told.append(event.task_name))
        crew(dies=False).kickoff(from_checkpoint=CheckpointConfig(restore_from=both, on_events=["*"]))
        event_bus.flush()
    assert told == ["e"]
    counted = pairs_up(place.last)
    assert {counted[kind, name] for kind in ("task_started", "task_completed") for name in "abcde"} == {1}
    assert counted["crew_kickoff_started", None] == counted["crew_kickoff_completed", None] == 1


def open_tasks(data: dict[str, Any]) -> set[str]:
    events = [node["event"] for node in data["event_record"]["nodes"].values()]
    ended = {event.get("started_event_id") for event in events}
    started = [event for event in events if event["type"] == "task_started"]
    return {event["task_name"] for event in started if event["event_id"] not in ended}


def test_numbers_go_on_where_they_were(chain, place, events_of):
    chain.die("c")
    chain.crew().kickoff(from_checkpoint=chain.from_(place.at(-1)))
    numbers = [event["emission_sequence"] for event in events_of(place.last)]
    assert numbers == sorted(set(numbers))


def test_a_failed_kickoff_that_goes_on_starts_again(chain, place, pairs_up):
    chain.config = CheckpointConfig(location=place.location, on_events=["*"])
    chain.die("c")
    assert place.last["trigger"] == "crew_kickoff_failed"
    chain.crew().kickoff(from_checkpoint=chain.from_(place.at(-1)))
    counted = pairs_up(place.last)
    assert counted["crew_kickoff_started", None] == 2
    assert counted["crew_kickoff_failed", None] == counted["crew_kickoff_completed", None] == 1
    assert counted["task_started", "c"] == 2
    assert counted["task_failed", "c"] == counted["task_completed", "c"] == 1


# -- code and data


def test_the_newest_living_crew_that_fits_gives_the_code(chain, place):
    class Mine(Crew):
        pass

    chain.die("c")
    chain.ran.clear()
    plain, other = chain.crew(), chain.crew(names="abcx")
    mine = Mine(**dict(chain.crew()))
    assert type(Mine.from_checkpoint(chain.from_(place.at(-1)))) is Mine
    restored = Crew.from_checkpoint(chain.from_(place.at(-1)))
    assert type(restored) is Mine, "the newest"
    assert restored not in (plain, other, mine)
    assert restored.kickoff().raw.startswith("d(")
    assert chain.ran == ["c", "d"]


def test_without_code_the_data_is_there_and_the_kickoff_says_what_is_missing(chain, place, without_code):
    chain.die("c")
    without_code()
    crew = Crew.from_checkpoint(chain.from_(place.at(-1)))
    assert [task.output.raw if task.output else None for task in crew.tasks] == ["a()", "b(a())", None, None]
    with pytest.raises(
        BadCrew, match=r"^task 'c' needs its code, which is not in the checkpoint: create the crew first, and then"
    ):
        crew.kickoff()


def test_without_code_a_crew_that_is_done_gives_its_result(chain, place, without_code):
    chain.crew().kickoff()
    without_code()
    crew = Crew.from_checkpoint(chain.from_(place.at(-1)))
    assert crew.is_data
    assert crew.kickoff().raw.startswith("d(")


def test_another_crews_checkpoint_is_refused(chain, place):
    chain.crew().kickoff()
    with pytest.raises(BadCheckpoint, match=r"is of a crew with the tasks 'a', 'b', 'c', 'd'; this one has 'x', 'y'$"):
        chain.crew(names="xy").kickoff(from_checkpoint=chain.from_(place.at(-1)))
    Agent(role="r")
    with pytest.raises(BadCheckpoint, match=r"holds no agent; it holds a crew$"):
        Agent.from_checkpoint(chain.from_(place.at(-1)))


def test_a_crew_that_was_changed_meanwhile_keeps_what_still_has_its_name(chain, place):
    chain.die("c")
    chain.ran.clear()
    chain.crew(names="axcd").kickoff(from_checkpoint=chain.from_(place.at(-1)))
    assert chain.ran == ["x", "c", "d"]


def test_tasks_without_names_are_known_by_place_and_words(place):
    settings = CheckpointConfig(location=place.location)

    def crew(*texts: str) -> Crew:
        return Crew(tasks=[Task(description=text, run=done(text)) for text in texts], checkpoint=settings)

    crew("one", "two").kickoff()
    other, same = crew("one", "three"), crew("one", "two")
    restored = Crew.from_checkpoint(CheckpointConfig(restore_from=place.at(0)))
    assert [task.description for task in restored.tasks] == [task.description for task in same.tasks]
    assert other.tasks[1].description == "three"
    assert restored.tasks[0].id != same.tasks[0].id, "the events know the tasks of then"


def test_a_provider_of_ones_own_knows_what_its_locations_look_like(tmp_path):
    class Shelf(JsonProvider):
        """Keeps what is put at ``q`` in a directory of that name, somewhere else."""

        provider_type: str = "shelf"

        def checkpoint(self, data, location, **more):
            return super().checkpoint(data, str(tmp_path / location), **more)

        def checkpoints(self, location, branch=None):
            return super().checkpoints(str(tmp_path / location), branch)

        def newest_first(self, location, branch=None):
            return reversed(self.checkpoints(location, branch))

    def crew() -> Crew:
        return Crew(tasks=[Task(name="a", run=lambda ctx: "A")])

    there = CheckpointConfig(location="q", provider=Shelf())
    first = crew()
    first.checkpoint = there
    first.kickoff()
    found = Crew.from_checkpoint(CheckpointConfig(provider=Shelf(), restore_from="q"))
    assert found.tasks[0].output.raw == "A"
    with pytest.raises(CheckpointNotFound):
        Crew.from_checkpoint(CheckpointConfig(provider=Shelf(), restore_from="nowhere"))
