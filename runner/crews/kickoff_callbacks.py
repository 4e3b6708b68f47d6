"""A crew's callbacks before its first and after its last task: on the fleet they are tasks of the run.

So each is done once, and its result is available on whichever worker continues, as are attributes that it sets on its
object. These are set only while a task of that run is performed: other runs may use the same object.
"""

import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from runner.core import output as outputs
from runner.core.errors import BadCrew, TaskError
from runner.core.inputs import BEFORE_KICKOFF, refuse_missing
from runner.core.output import TaskOutput, UsageMetrics
from runner.core.plain_text import of_class
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import EVERYTHING
from runner.crews import callback_state
from runner.crews.crew import Crew, CrewOutput, output_of
from runner.engine.work import Work
from runner.journal.object_state import ObjectState, State

BEFORE, AFTER = BEFORE_KICKOFF, "after_kickoff"
KEYS = frozenset({BEFORE, AFTER})

USAGE = "usage"  #: stored beside the output of a task: what its calls of models took

Callbacks = Sequence[Callable[[Any], Any]]

TURN = 1.0  #: seconds: how often who waits for another task looks whether it is to stop

_turns: dict[int, threading.Lock] = {}
"""Held by the task that has the objects of a crew, by the id of each crew that is there."""


def around(crew: Crew, plan: Plan) -> Plan:
    """Return the plan with a task before all others, and one after them, if the crew has such callbacks."""
    if not keys_of(crew):
        return plan
    tasks = list(plan.tasks)
    if taken := [task.key for task in tasks if task.key in keys_of(crew)]:
        raise BadCrew(f"the task name {taken[0]!r} is reserved for the crew's callbacks: give the task another name")
    waited_for = {key for task in tasks for key in task.after}
    last = tuple(task.key for task in tasks if task.key not in waited_for)
    if crew.before_kickoff_callbacks:
        first = [one if one.after else one._replace(after=(BEFORE,)) for one in tasks]
        tasks = [PlannedTask(BEFORE, context=()), *first]
    if crew.after_kickoff_callbacks:
        tasks.append(PlannedTask(AFTER, last))
    inputs = frozenset[str]() if crew.before_kickoff_callbacks else plan.inputs  # what is missing may come from one
    return dataclasses.replace(plan, tasks=tuple(tasks), inputs=inputs)


def keys_of(crew: Crew) -> list[str]:
    """Return the keys of the tasks of a crew's callbacks."""
    return [BEFORE] * bool(crew.before_kickoff_callbacks) + [AFTER] * bool(crew.after_kickoff_callbacks)


def begin(crew: Crew, work: Work, needed: frozenset[str]) -> str:
    """Call the callbacks with the inputs; return the text to store. Raises `BadInput` for missing ``needed`` ones."""
    work.uses.input(EVERYTHING)
    callbacks = [functools.partial(_changed_by, callback) for callback in crew.before_kickoff_callbacks]
    inputs, state = before(callbacks, callback_state.owners(crew), dict(work.inputs), work)
    refuse_missing(needed, inputs or {})
    return outputs.dump(*outputs.from_value({"inputs": inputs, **({"self": state} if state else {})}))


def before(callbacks: Callbacks, own: ObjectState, inputs: Any, work: Work) -> tuple[dict[str, Any] | None, State]:
    """Call the callbacks one after the other.

    Returns the inputs that they made, and the attributes that they set on their objects. Each is recorded: a completed
    one is not called again when the task restarts.
    """
    state: State = {}
    for callback in callbacks:

        def call(found: Any, callback: Any = callback) -> Any:
            seen = own.seen()
            made = callback(found)
            left, lost = callback_state.left_on(own, seen)
            for what in lost:
                work.note("task_log", what)
            return {"inputs": json_inputs(made), "state": left}

        said = work.journal.step(BEFORE, call, ({} if inputs is None else inputs,), {}, counted=False)
        inputs = said["inputs"]
        own.put(said["state"])
        for name, found in said["state"].items():
            state.setdefault(name, {}).update(found)
    return inputs, state


def json_inputs(given: Any) -> dict[str, Any] | None:
    """Return the inputs, which must be JSON because tasks run elsewhere. Raises `TaskError` otherwise."""
    if given is not None and not isinstance(given, Mapping):
        raise TaskError(f"{BEFORE} returned {of_class(given)}, not the inputs: return them as a dict")
    for name, value in (given or {}).items():
        try:
            outputs.from_value({str(name): value})
        except TypeError:
            raise TaskError(
                f"the input {name!r} that {BEFORE} returned is {of_class(value)}, which is not JSON: "
                "tasks run in other processes, so make it text, a number, a list or a dict"
            ) from None
    return None if given is None else dict(given)


@contextlib.contextmanager
def begun(crew: Crew, work: Work) -> Iterator[Work]:
    """While open, the task has inputs and attributes as the callbacks left them; runs that share objects take turns."""
    state: State = {}
    own = callback_state.owners(crew)
    if BEFORE in work.plan.by_key and work.key != BEFORE:
        inputs, state = changed(work)
        work = dataclasses.replace(work, inputs=inputs or {})
    if not own.objects or not (state or work.key in KEYS):
        yield work
        return
    with _alone_with(crew, own, work):
        own.put(state)
        yield work


@contextlib.contextmanager
def _alone_with(crew: Crew, own: ObjectState, work: Work) -> Iterator[None]:
    """While this is open, no other task of this process uses these objects; afterwards they are restored."""
    if (turn := _turns.get(id(crew))) is None:
        turn = _turns.setdefault(id(crew), threading.Lock())
        weakref.finalize(crew, _turns.pop, id(crew), None).atexit = False
    while not turn.acquire(timeout=TURN):
        work.journal.cancel_scope.check()
    try:
        restore = callback_state.keep(own)
        try:
            yield
        finally:
            restore()
    finally:
        turn.release()


def changed(work: Work) -> tuple[dict[str, Any] | None, State]:
    """Return the inputs and the objects' attributes as the first callbacks left them. Raises `TaskError`."""
    found = stored(work, BEFORE)
    inputs, state = found.get("inputs"), found.get("self", {})
    if not isinstance(inputs, dict | None) or not isinstance(state, dict):
        raise TaskError(f'the output of {BEFORE!r} is not {{"inputs": {{...}}}}')
    return inputs, state


def stored(work: Work, key: str) -> dict[str, Any]:
    """Return the JSON that an earlier task of the kickoff, such as the planner, stored."""
    work.uses.task(key)
    found = work.given.get(key) or work.fetch([key])[key]
    if not isinstance(found.json_dict, dict):
        raise TaskError(f"the output of {key!r} is not a JSON object")
    return found.json_dict


def spent(work: Work) -> dict[str, Any]:
    """Return what is stored with a task's output for the crew's ``token_usage``: nothing if no callback can read it."""
    if AFTER not in work.plan.by_key or work.key in KEYS:
        return {}
    usage = UsageMetrics()
    for call in work.journal.usages():
        usage.add(call.prompt_tokens, call.completion_tokens)
    return {USAGE: usage.model_dump()} if usage.successful_requests else {}


def end(crew: Crew, work: Work, done: Mapping[str, TaskOutput], last: str) -> str:
    """Call the callbacks after the last task. Returns the crew's output as they leave it, to be stored."""
    usage = UsageMetrics()
    for record in work.stored_with(list(done)).values():
        usage.include(UsageMetrics.model_validate(record.get(USAGE) or {}))
    for key, task in crew.by_key.items():
        task.output = done.get(key)
    result: Any = output_of(crew, done, last, usage)
    for callback in crew.after_kickoff_callbacks:
        result = _after(callback, result, work)
    return outputs.dump(*(outputs.from_value(result) if not isinstance(result, CrewOutput) else _parts(result)))


def _after(callback: Callable[[Any], Any], result: Any, work: Work) -> Any:
    """Call one callback with the crew's output, recorded. Text or other JSON that it returns replaces the output."""

    def call(_: Any) -> Any:
        made = callback(result)
        made = result if made is None else made
        return {"crew": _parts(made)} if isinstance(made, CrewOutput) else {"value": made}

    given = _parts(result) if isinstance(result, CrewOutput) else result
    said = work.journal.step(AFTER, call, (given,), {}, counted=False)
    if "value" in said:
        return said["value"]
    output = result if isinstance(result, CrewOutput) else CrewOutput()
    output.raw, output.json_dict = said["crew"]
    return output


def _parts(output: CrewOutput) -> tuple[str, Any]:
    return output.raw, output.json_dict


def _changed_by(callback: Callable[[Any], Any], inputs: dict[str, Any]) -> Any:
    """Return the inputs that a callback returned; else those it was given, which it may have changed in place."""
    made = callback(inputs)
    return inputs if made is None else made
