"""Crews that are kicked off inside of tasks."""

from typing import Any

import pytest

from runner import CheckpointConfig, Crew, Task


def done(text: str) -> Any:
    return lambda ctx: text


def test_a_crew_in_a_task_goes_on_too(place, pairs_up):
    """Killed in the inner crew's second task: nothing of its first is paid again, in whichever order it is found."""
    ran: list[str] = []

    def crew(*, dies: bool) -> Crew:
        def inner_work(ctx: Any) -> str:
            name = f"{ctx.task.name}{ctx.inputs['n']}"
            if dies and name == "y2":
                raise KeyboardInterrupt
            ran.append(name)
            return name

        def outer_work(ctx: Any) -> str:
            found = []
            for n in (1, 2, 3):
                inner = Crew(tasks=[Task(name=x, run=inner_work) for x in "xyz"])
                found.append(ctx.step("inner", lambda crew, n: crew.kickoff({"n": n}).raw, inner, n))
            return " ".join(found)

        events: Any = ["tool_usage_finished", "task_completed", "crew_kickoff_completed", "task_started"]
        return Crew(
            name="outer", tasks=[Task(name="outer", run=outer_work)],
            checkpoint=CheckpointConfig(location=place.location, on_events=events),
        )  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        crew(dies=True).kickoff()
    assert ran == ["x1", "y1", "z1", "x2"]
    assert [e["name"] for e in place.last["entities"]] == ["outer"]
    assert crew(dies=False).kickoff(from_checkpoint=CheckpointConfig(restore_from=place.at(-1))).raw == "z1 z2 z3"
    assert ran.count("x1") == 1


def test_a_crew_in_flight_inside_of_another_is_in_the_checkpoint_and_goes_on(place, pairs_up):
    ran: list[str] = []

    def crew(*, dies: bool) -> Crew:
        def inner_work(ctx: Any) -> str:
            if dies and ctx.task.name == "y":
                raise KeyboardInterrupt
            ran.append(ctx.task.name)
            return ctx.task.name

        settings = CheckpointConfig(location=place.location, on_events=["task_completed", "crew_kickoff_completed"])

        def outer_work(ctx: Any) -> str:
            inner = Crew(name="inner", tasks=[Task(name=x, run=inner_work) for x in "xyz"], checkpoint=settings)
            return inner.kickoff({"n": 1}).raw

        return Crew(name="outer", tasks=[Task(name="outer", run=outer_work)], checkpoint=settings)

    with pytest.raises(KeyboardInterrupt):
        crew(dies=True).kickoff()
    assert [e["name"] for e in place.last["entities"]] == ["outer", "inner"]
    events: Any = ["task_completed", "crew_kickoff_completed"]
    config = CheckpointConfig(restore_from=place.at(-1), on_events=events)
    assert crew(dies=False).kickoff(from_checkpoint=config).raw == "z"
    assert ran == ["x", "y", "z"]
    counted = pairs_up(place.last)
    assert [counted["task_started", x] for x in ("outer", *"xyz")] == [1, 1, 1, 1]
    assert counted["crew_kickoff_started", None] == 2
    assert [e["name"] for e in place.last["entities"]] == ["outer"], "the inner one is over"


def test_a_crew_that_is_restored_inside_of_a_task_has_its_own_line(chain, place, tmp_path):
    chain.die("c")

    def work(ctx: Any) -> str:
        return chain.crew().kickoff(from_checkpoint=chain.from_(place.at(1))).raw

    outer = CheckpointConfig(location=str(tmp_path / "outer"))
    Crew(name="outer", tasks=[Task(name="o", run=work), Task(name="p", run=done("p"))], checkpoint=outer).kickoff()
    assert chain.ran == list("abcd")
    assert [info.parent_id for info in place.infos] == [None, *(info.id for info in place.infos[:-1])]
    assert [e["name"] for e in type(place)(outer.location).last["entities"]] == ["outer"]
