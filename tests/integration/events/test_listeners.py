"""Handlers that wait for others, and classes of handlers, as CrewAI has them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from runner.events import BaseEvent, BaseEventListener, Depends, TaskCompletedEvent, event_bus
from runner.events.depends import CircularDependencyError, build_execution_plan


class Rang(BaseEvent):
    type: str = "rang"


@pytest.fixture
def said() -> Iterator[list[str]]:
    with event_bus.scoped_handlers():
        yield []


def test_who_depends_on_others_is_called_after_them(said: list[str]) -> None:
    @event_bus.on(Rang)
    def first(source: Any, event: Any) -> None:
        said.append("first")

    @event_bus.on(Rang, Depends(first))
    async def second(source: Any, event: Any) -> None:
        await asyncio.sleep(0)
        said.append("second")

    @event_bus.on(Rang, depends_on=[Depends(first), Depends(second)])
    def third(source: Any, event: Any) -> None:
        said.append("third")

    for _ in range(20):
        event_bus.emit(None, Rang())
        assert event_bus.flush(10)  # of all three, also those that have not begun
        assert said == ["first", "second", "third"]
        said.clear()
    asyncio.run(event_bus.aemit(None, Rang()))
    assert event_bus.flush(10)
    assert sorted(said) == ["first", "second", "third"]


def test_a_handler_that_fails_or_is_not_there_holds_nobody_up(said: list[str]) -> None:
    def elsewhere(source: Any, event: Any) -> None: ...

    @event_bus.on("rang")
    def fails(source: Any, event: Any) -> None:
        raise ValueError("no")

    @event_bus.on("rang", depends_on=[Depends(fails), Depends(elsewhere)])
    def then(source: Any, event: Any) -> None:
        said.append("then")

    future = event_bus.emit(None, Rang())
    assert future is not None
    future.result(10)
    assert said == ["then"]


def test_handlers_that_wait_for_each_other_are_refused(said: list[str]) -> None:
    def one(source: Any, event: Any) -> None: ...

    def other(source: Any, event: Any) -> None: ...

    waits = {one: [Depends(other)], other: [Depends(one)]}
    with pytest.raises(
        CircularDependencyError, match=r"Circular dependency detected in event handlers: .*one, .*other"
    ):
        build_execution_plan([one, other], waits)
    event_bus.on(Rang, Depends(other))(one)
    with pytest.raises(CircularDependencyError):
        event_bus.on(Rang, Depends(one))(other)


def test_what_is_said_to_depend_is_forgotten_with_its_scope(said: list[str]) -> None:
    def one(source: Any, event: Any) -> None: ...

    event_bus.on(Rang, Depends(one))(said.append)
    with event_bus.scoped_handlers():
        assert not event_bus._waits_for
    event_bus.drop("builtins")
    assert event_bus.emit(None, Rang()) is None or event_bus.flush(10)


def test_a_listener_registers_its_handlers_when_it_is_made(said: list[str]) -> None:
    class Mine(BaseEventListener):
        def setup_listeners(self, crewai_event_bus: Any) -> None:
            @crewai_event_bus.on(TaskCompletedEvent)
            def done(source: Any, event: Any) -> None:
                said.append(event.output.raw)

    with pytest.raises(TypeError):
        BaseEventListener()
    Mine()
    from runner import Crew, Task

    Crew(tasks=[Task(name="a", run=lambda ctx: "owls")]).kickoff()
    assert event_bus.flush(10)
    assert said == ["owls"]


def test_crewais_paths_have_them() -> None:
    from runner.events.base_event_listener import BaseEventListener as listener
    from runner.events.handler_graph import build_execution_plan as plan

    assert (listener, plan) == (BaseEventListener, build_execution_plan)
