"""Hooks of several crews in one process: each has its own, whoever wrote them, and takes away no other's."""

import contextvars
import gc
import textwrap
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from runner.crews.adapter import NATIVE
from runner.crews.context import Task
from runner.crews.crew import Crew
from runner.events.bus import set_audience
from runner.hooks import registry
from runner.hooks.registry import InterceptionPoint

POINT = InterceptionPoint.PRE_MODEL_CALL

CREW = """
    from runner.hooks import *

    @before_llm_call
    def own(context): pass

    register_before_llm_call_hook(of_library)
    register_before_llm_call_hook(guard)
    """


def of_library(context: Any) -> None:
    """A hook that crews import."""


class Guard:
    """Another one."""

    def __call__(self, context: Any) -> None:
        """Allow all."""


guard = Guard()


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    for hooks in registry.registered.values():
        hooks.clear()


def code(bundle: str, text: str = CREW) -> dict[str, Any]:
    """A crew's code, as if a worker had read it."""
    names = {"__name__": f"{bundle}.crew", "of_library": of_library, "guard": guard}
    exec(textwrap.dedent(text), names)
    return names


def called(bundle: str, crew: Any = None) -> list[Any]:
    """The hooks that a task of a crew would call."""

    def look() -> list[Any]:
        set_audience(lambda module: not module.startswith("_crew_") or f"{module}.".startswith(f"{bundle}."))
        assert registry.any_here() is bool(registry.active(POINT, crew))
        return [next(reversed([*registry._layers(one)])) for one in registry.active(POINT, crew)]

    return contextvars.Context().run(look)


def test_each_crew_has_its_own_also_of_a_library() -> None:
    one, two = code("_crew_1"), code("_crew_2")
    assert called("_crew_1") == [one["own"], of_library, guard]
    assert called("_crew_2") == [two["own"], of_library, guard]
    assert called("_crew_3") == []
    registry.drop("_crew_1")
    assert called("_crew_1") == []
    assert len(called("_crew_2")) == 3


def test_what_one_crew_removes_another_one_keeps() -> None:
    registry.register_hook(POINT, of_library)  # of the process: for all
    one = code("_crew_1")
    two = code("_crew_2", CREW + "\n    seen, gone = get_before_llm_call_hooks(), clear_all_llm_call_hooks()")
    assert (two["seen"], two["gone"]) == ([two["own"], of_library, guard], (3, 0))
    assert called("_crew_2") == [of_library]
    assert called("_crew_1") == [of_library, one["own"], of_library, guard]
    three = code(
        "_crew_3", CREW + "\n    gone = [unregister_before_llm_call_hook(one) for one in (of_library, own, own)]"
    )
    assert three["gone"] == [True, True, False]
    assert called("_crew_3") == [of_library, guard]
    assert registry.clear_hooks(POINT) == 5
    assert called("_crew_1") == []


def test_a_crew_without_hooks_is_done_as_if_no_other_had_any() -> None:
    async def waits(ctx: Any) -> str:
        return ""

    crew = Crew(tasks=[Task(name="waits", run=waits)])

    def only_waits(bundle: str) -> bool:
        set_audience(lambda module: not module.startswith("_crew_") or f"{module}.".startswith(f"{bundle}."))
        return NATIVE.only_waits(crew, "waits")

    code("_crew_1")
    assert not contextvars.Context().run(only_waits, "_crew_1")
    assert contextvars.Context().run(only_waits, "_crew_2")


def test_a_hook_that_is_a_method_goes_with_its_object_whoever_collects_it() -> None:
    text = """
        from runner.hooks import before_llm_call
        from runner.project import CrewBase

        @CrewBase
        class Team:
            agents_config = tasks_config = None
            @before_llm_call
            def hook(self, context): pass

        made = Team()
        """
    names = code("_crew_1", text)
    crew = SimpleNamespace(made_by=names["made"])
    assert len(called("_crew_1", crew)) == 1
    del crew, names["made"]
    code("_crew_2", "import gc; gc.collect()")
    gc.collect()
    assert registry.get_hooks(POINT) == []
