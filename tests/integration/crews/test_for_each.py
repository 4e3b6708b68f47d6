"""A crew for each of many inputs, and one that is done again from a task on."""

import asyncio
import threading
from typing import Any

import pytest

from runner import Agent, BaseLLM, Crew, Task
from runner.events import event_bus


def two(done: list[str], together: threading.Barrier | None = None) -> Crew:
    def first(ctx: Any) -> str:
        if together is not None:
            together.wait(10)
        done.append(f"first {ctx.inputs['topic']}")
        return f"notes on {ctx.inputs['topic']}"

    def second(ctx: Any) -> str:
        done.append(f"second {ctx.inputs['topic']}")
        return f"{ctx.outputs['first'].raw}, in short"

    notes = Task(name="first", description="{topic}", run=first)
    return Crew(tasks=[notes, Task(name="second", run=second, context=[notes])])


TOPICS = [{"topic": "owls"}, {"topic": "eels"}, {"topic": "ants"}]
TEXTS = [f"notes on {one['topic']}, in short" for one in TOPICS]


def test_one_after_the_other() -> None:
    done: list[str] = []
    crew = two(done)
    crew.kickoff({"topic": "hens"})
    assert [output.raw for output in crew.kickoff_for_each(TOPICS)] == TEXTS
    assert done[2:] == [f"{name} {one['topic']}" for one in TOPICS for name in ("first", "second")]
    assert crew.tasks[0].output is not None
    assert crew.tasks[0].output.raw == "notes on hens"  # each was done by a copy
    assert crew.kickoff_for_each([]) == []


@pytest.mark.parametrize("name", ["kickoff_for_each_async", "akickoff_for_each"])
def test_side_by_side(name: str) -> None:
    crew = two([], threading.Barrier(len(TOPICS)))  # which no one passes alone
    outputs = asyncio.run(getattr(crew, name)(TOPICS))
    assert [output.raw for output in outputs] == TEXTS


class Speaks(BaseLLM):
    def call(self, messages: Any, **more: Any) -> str:
        return "spoken"


def test_copies_have_their_own_agents_and_tasks_and_the_sum_of_usage() -> None:
    clerk = Agent(role="clerk", llm=Speaks(model="none"))
    crew = Crew(agents=[clerk], tasks=[Task(name="say", description="Say {topic}", agent=clerk)])
    started: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on("crew_kickoff_started")(lambda source, event: started.append(source))
        assert [output.raw for output in crew.kickoff_for_each(TOPICS)] == ["spoken"] * 3
        assert event_bus.flush(10)
    assert len({one.id for one in started} | {crew.id}) == 4
    assert len({one.agents[0].id for one in started} | {clerk.id}) == 4
    assert all(one.tasks[0].agent is one.agents[0] and one.agents[0].crew is one for one in started)
    assert clerk.crew is crew
    assert crew.usage_metrics is not None


def test_one_that_fails_lets_the_others_end() -> None:
    ended: list[str] = []

    def work(ctx: Any) -> str:
        if ctx.inputs["topic"] == "eels":
            raise ValueError("no eels")
        ended.append(ctx.inputs["topic"])
        return "done"

    crew = Crew(tasks=[Task(name="a", run=work)])
    with pytest.raises(ValueError, match="no eels"):
        asyncio.run(crew.akickoff_for_each(TOPICS))
    assert sorted(ended) == ["ants", "owls"]
    assert [one and one.raw for one in crew.for_each_outputs] == ["done", None, "done"]


def test_one_that_fails_leaves_what_was_paid_for_before_it() -> None:
    failing = ["eels"]

    def work(ctx: Any) -> str:
        if ctx.inputs["topic"] in failing:
            raise ValueError("no eels")
        return f"on {ctx.inputs['topic']}"

    crew = Crew(tasks=[Task(name="a", run=work)])
    with pytest.raises(ValueError, match="no eels") as raised:
        crew.kickoff_for_each(TOPICS)
    assert [one and one.raw for one in crew.for_each_outputs] == ["on owls", None, None]
    assert raised.value.__notes__ == ["kickoff_for_each: the outputs of 1 of 3 inputs are in crew.for_each_outputs"]
    assert crew.usage_metrics is not None
    failing.clear()
    assert len(crew.kickoff_for_each(TOPICS)) == 3
    assert crew.for_each_outputs == []


def test_replay_does_a_task_again_and_those_after_it() -> None:
    done: list[str] = []
    crew = two(done)
    with pytest.raises(ValueError, match="task 'first' has none"):
        crew.replay("second")
    crew.kickoff({"topic": "owls"})
    done.clear()
    assert crew.replay("second").raw == "notes on owls, in short"
    assert done == ["second owls"]
    assert crew.replay(str(crew.tasks[1].id), {"topic": "eels"}).tasks_output[0].raw == "notes on owls"
    assert done == ["second owls", "second eels"]
    assert crew.replay("first").raw == "notes on eels, in short"
    assert done[2:] == ["first eels", "second eels"]
    with pytest.raises(ValueError, match="Task with id third not found in the crew's tasks: it has first, second"):
        crew.replay("third")


def test_what_one_raises_is_raised_also_where_a_subclass_returns_no_crew_outputs() -> None:
    class Terse(Crew):
        def kickoff(self, inputs: Any = None, **_: Any) -> Any:
            if inputs["topic"] == "eels":
                raise LookupError("no eels here")
            return "a text"

    crew = Terse(tasks=two([]).tasks)
    with pytest.raises(LookupError, match="no eels here"):
        crew.kickoff_for_each(TOPICS)
    assert crew.for_each_outputs == ["a text", None, None]
