"""Runs functions and files that do more than one kickoff as one task, with what comes between and after them.

What their models and tools gave is recorded as it comes, and what their callbacks did; so when the task restarts it
goes through all that again without paying, up to where it was.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from crewai import Crew, CrewOutput
from crewai.events.event_context import get_current_parent_id
from crewai.hooks import InterceptionPoint
from crewai.lite_agent_output import LiteAgentOutput
from pydantic import BaseModel

from runner.adapters.crewai import call_observer, crew_plan, human_input, values
from runner.adapters.crewai.execute import NO_CREW, at_work
from runner.bundles.program import Program
from runner.core import output as outputs
from runner.core.interpolation import placeholders
from runner.core.plain_text import of_class
from runner.core.plan.dependencies import EVERYTHING
from runner.engine.work import Work


def perform(program: Program, work: Work) -> str:
    """Run the whole program. Returns its result to be stored: what it returned, or else its last kickoff's output."""
    work.uses.input(EVERYTHING)
    with (
        at_work(NO_CREW, work),
        human_input.asking_in_flows(work),
        _given(work.inputs),
        _outputs() as given,
    ):
        returned = program.run()
    return _stored(returned, given[-1:], work)


@contextlib.contextmanager
def _given(inputs: Mapping[str, Any]) -> Iterator[None]:
    """While this is open, the run's inputs replace kickoffs' own of the same names, and fill placeholders."""

    def begins(context: Any) -> None:
        if get_current_parent_id() is not None:
            return  # a crew in a flow's method: it gets what that gives it
        own = dict(context.payload or {})
        wanted = {name: value for name, value in inputs.items() if name in own or name in _wanted(context)}
        if wanted:
            context.payload = {**own, **wanted}

    with crew_plan.hooked(InterceptionPoint.EXECUTION_START, begins):
        yield


def _wanted(context: Any) -> set[str]:
    """Return the names of a crew's placeholders, or of the fields of a flow's state."""
    if isinstance(crew := getattr(context, "crew", None), Crew):
        return set(placeholders(crew_plan.texts(crew)))
    state = getattr(getattr(context, "flow", None), "state", None)
    return set(type(state).model_fields) - {"id"} if isinstance(state, BaseModel) else set()


@contextlib.contextmanager
def _outputs() -> Iterator[list[Any]]:
    """Collect the output of each kickoff while this is open; the list holds the last one."""
    found: list[Any] = []

    def ends(context: Any) -> None:
        if context.status == "completed":
            found[:] = [context.payload]

    def take(_: Any, event: Any) -> None:
        if event.type == "lite_agent_execution_completed":
            found[:] = [event.output]

    with call_observer.receiving(take), crew_plan.hooked(InterceptionPoint.EXECUTION_END, ends):
        yield found


def _stored(returned: Any, given: list[Any], work: Work) -> str:
    if returned is not None:
        try:
            return _dumped(returned)
        except TypeError:
            work.note(
                "task_log",
                f"{work.key} returned {of_class(returned)}, which is not JSON: the result is its last kickoff's",
            )
    for one in given:
        with contextlib.suppress(TypeError):
            return _dumped(one)
    return outputs.dump("", None)


def _dumped(value: Any) -> str:
    return outputs.dump(*(_parts(value) if _is_output(value) else outputs.from_value(_plain(value))))


def _is_output(value: Any) -> bool:
    return isinstance(value, CrewOutput | LiteAgentOutput)


def _parts(output: Any) -> tuple[str, Any]:
    """Return the text of a kickoff's output, and its JSON if there is more to it."""
    if isinstance(output, CrewOutput):
        return output.raw, values.json_of(output)
    return output.raw, json.loads(output.pydantic.model_dump_json()) if output.pydantic is not None else None


def _plain(value: Any) -> Any:
    """Return the value with each output of a kickoff in it as its JSON, or else as its text."""
    if _is_output(value):
        raw, data = _parts(value)
        return raw if data is None else data
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value
