"""Crews written with ``from runner import Crew, Task``."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError

from runner.agents import Agent
from runner.core import encoding, waiting
from runner.core import output as outputs
from runner.core.errors import BadCrew, TaskError, UnknownTask
from runner.core.interpolation import interpolate, placeholders
from runner.core.output import TaskOutput
from runner.core.plain_text import why_no_name
from runner.core.plan import THREAD, Plan, PlannedTask, refuse_cycles, sequential_order
from runner.core.plan.dependencies import EVERYTHING
from runner.core.waiting import awaited
from runner.crews import callback_state, kickoff_callbacks, native_task, planning
from runner.crews.context import ConditionalTask, Task, TaskContext
from runner.crews.crew import Crew, Process
from runner.crews.human_review import reviewed
from runner.crews.validation import refuse_staff, refuse_task
from runner.engine.work import Work
from runner.hooks import registry
from runner.llm.llm import LLM, BaseLLM, model_for
from runner.providers.config import CheckpointConfig, resolve

_CALLBACKS = Task(run=lambda _: None)
"""Stands for what the crew's callbacks do before and after its tasks, which is no task of its."""

LONGEST_NAME = 200  #: characters of a task's
_HIDDEN = frozenset({planning.KEY, kickoff_callbacks.BEFORE})  # what no task is told that does not ask for it


class NativeAdapter:
    """Plans and performs native crews."""

    name = "native"

    def accepts(self, thing: object) -> bool:
        """Whether ``thing`` is a native crew."""
        return isinstance(thing, Crew)

    def plan(self, crew: Crew, name: str) -> Plan:
        """Return the crew's plan, with its callbacks as tasks before and after all others. Raises `BadCrew`."""
        plan = self.plan_of_tasks(crew, name)
        return kickoff_callbacks.around(crew, plan)

    def plan_of_tasks(self, crew: Crew, name: str) -> Plan:
        """Return the plan without callbacks, which `kickoff` calls itself. Raises `BadCrew`."""
        if not crew.tasks:
            raise BadCrew("the crew has no tasks")
        refuse_staff(crew)
        keys = keys_of(crew)[len(crew.all_tasks) - len(crew.tasks) :]
        by_task = {id(task): key for task, key in zip(crew.tasks, keys, strict=True)}
        context = {key: _context(task, key, by_task) for task, key in zip(crew.tasks, keys, strict=True)}
        after = _after(crew, keys, context)
        for task, key in zip(crew.tasks, keys, strict=True):
            refuse_task(crew, task, key, after[key])
        planned = [
            PlannedTask(key, after[key], context[key], _timeout(crew, task), _pool(crew, task))
            for task, key in zip(crew.tasks, keys, strict=True)
        ]
        if crew.planner is not None:
            crew.planner.description = planning.described(crew.tasks)
            first = PlannedTask(planning.KEY, context=(), pool=_pool(crew, crew.planner))
            planned = [first, *(one if one.after else one._replace(after=(first.key,)) for one in planned)]
        return Plan(crew=crew.name or name, tasks=tuple(planned), inputs=_inputs(crew))

    def checkpoints(self, crew: Crew) -> CheckpointConfig | None:
        """Return the checkpoint settings that the crew's ``checkpoint`` gives."""
        return resolve(crew.checkpoint)

    def warm(self, crew: Crew, key: str) -> None:
        """Create the clients of the models that the task's agent and its coworkers call."""
        task = _task(crew, key)
        doer = crew.doer(task) if task.run is None else None
        for agent in (doer, *crew.coworkers(task)) if doer is not None else ():
            model = model_for(agent.llm) if agent is not None else None
            if isinstance(model, LLM):
                model.warm()

    def source(self, crew: Crew, key: str) -> Task | Crew:
        """Return the task of that key; for the tasks of the crew's callbacks, the crew."""
        task = _task(crew, key)
        return crew if task is _CALLBACKS else task

    def retry(self, crew: Crew, key: str) -> tuple[int, float]:
        """Return the task's number of retries, and the delay before the first in seconds."""
        task = _task(crew, key)
        return task.max_retries, task.retry_delay

    def input_kinds(self, crew: Crew) -> dict[str, str]:  # noqa: ARG002 - the port's names
        """Return no kinds: a crew's inputs are texts in the absence of other values."""
        return {}

    def input_names(self, crew: Crew) -> list[str] | None:  # noqa: ARG002 - the port's names
        """Return None: the inputs that callables look up are named in no text."""
        return None

    def output_files(self, crew: Crew) -> dict[str, str]:
        """Return the ``output_file`` of each task that has one, by key."""
        return {key: t.output_file for key, t in zip(keys_of(crew), crew.all_tasks, strict=True) if t.output_file}

    def models(self, crew: Crew) -> dict[str, type[BaseModel]]:
        """Return the output models by key: those of ``output_pydantic``, ``output_json`` or the return annotation."""
        found = ((key, task.output_model()) for key, task in zip(keys_of(crew), crew.all_tasks, strict=True))
        return {key: model for key, model in found if model is not None}

    def only_waits(self, crew: Crew, key: str) -> bool:
        """Whether no part of the task blocks its thread.

        A coroutine does not block, unless the task asks for a thread. Nor does an agent with an `LLM`: its
        tools have threads of their own.
        """
        task = _task(crew, key)
        if registry.any_here() or self.is_of_one_task(crew):  # whatever they do
            return False
        if task.callback or crew.task_callback or task.checks or task.human_input or isinstance(task, ConditionalTask):
            return False
        if task.run is not None:
            return task.pool is None and inspect.iscoroutinefunction(task.run)
        doer = crew.doer(task)
        if doer is None or doer.mcps or not _is_ours(doer):
            return False
        return not (crew.step_callback or doer.step_callback or doer.guardrail)

    def is_of_one_task(self, crew: Crew) -> bool:
        """Whether each task needs a crew object of its own, because callbacks may change theirs."""
        return bool(callback_state.owners(crew).objects)

    def perform(self, crew: Crew, work: Work, *, is_begun: bool = False) -> str:
        """Do the task, then its guardrails and callbacks. A kickoff that ``is_begun`` looks after its own callbacks."""
        has_callbacks = crew.before_kickoff_callbacks or crew.after_kickoff_callbacks
        if has_callbacks and not (is_begun or kickoff_callbacks.KEYS.isdisjoint(work.plan.by_key)):
            with kickoff_callbacks.begun(crew, work) as begun:
                return self.perform(crew, begun, is_begun=True)
        task = _task(crew, work.key)

        def finish(key: str, output: TaskOutput) -> TaskOutput:
            of = task if key == work.key else _task(crew, key)
            if (model := of.output_model()) is not None:
                output.pydantic = outputs.fitted(key, model, output.json_dict)
            return outputs.named(output, of.names)

        if task is _CALLBACKS:
            return self._call_back(crew, work, finish)
        doer, planner = crew.doer(task), crew.planner
        if crew.max_rpm is not None:
            work.journal.limit("crew", crew.max_rpm)
        _note_what_is_told(task, doer, work)
        hidden = _HIDDEN if planner is not None or has_callbacks else ()
        context = TaskContext(work, partial(_filled, task, work), finish, hidden)
        if planner is not None and task is not planner and task.run is None:
            context.task.description = native_task.planned(crew, task, context)
        if isinstance(task, ConditionalTask) and not native_task.is_wanted(task, work, context):
            work.note("task_skipped", "its condition does not hold")
            return outputs.dump("", None)
        called = (task.callback, crew.task_callback if task is not planner else None)
        callbacks = [one for one in called if one is not None]
        value, is_plain = None, task.run is not None and not (callbacks or task.human_input or task.checks)
        if task.run is not None and is_plain:
            value = _given_by(task.run(context))
            if type(value) is str and task.output_model() is None:  # only its text is ever seen
                return self._as_stored(crew, work, outputs.stored(value, None))
        at_work = _TaskAtWork(crew, task, doer, context, work, finish)
        if is_plain:
            output = at_work.output(_as_declared(work.key, task, value))
        elif task.human_input:
            output = reviewed(context, work, at_work.passed, lambda kept: at_work.output(outputs.from_record(kept)))
        else:
            output = at_work.passed()
        for callback in callbacks:
            callback(output)
        return self._as_stored(crew, work, outputs.record(output))

    def _as_stored(self, crew: Crew, work: Work, record: Mapping[str, Any]) -> str:
        return outputs.to_text({**record, **kickoff_callbacks.spent(work)} if crew.after_kickoff_callbacks else record)

    def _call_back(self, crew: Crew, work: Work, finish: Callable[[str, TaskOutput], TaskOutput]) -> str:
        """Call the crew's callbacks before its first task, or after its last one. Returns the text to store."""
        if work.key == kickoff_callbacks.BEFORE:
            return kickoff_callbacks.begin(crew, work, _inputs(crew))
        crew.file_keys()
        keys = [key for key in work.plan.by_key if key not in kickoff_callbacks.KEYS]
        for key in keys:
            work.uses.task(key)
        found = {**work.given, **work.fetch([key for key in keys if key not in work.given])}
        done = {}
        for key in keys:
            task = _task(crew, key)
            doer = crew.doer(task)
            role = interpolate(doer.role, work.inputs) if doer is not None else ""
            about = {"name": key, "description": interpolate(task.description, work.inputs), "agent": role}
            done[key] = finish(key, found[key].model_copy(update=about))
        return kickoff_callbacks.end(crew, work, done, keys[-1])


NATIVE = NativeAdapter()


def keys_of(crew: Crew) -> list[str]:
    """The key of each task: its name, or ``task_N``. Raises `BadCrew` on duplicates."""
    keys = crew.task_keys
    twice = sorted({key for key in keys if keys.count(key) > 1}) if len(set(keys)) < len(keys) else []
    if twice:
        raise BadCrew(f"two tasks are called {twice[0]!r}: give each its own name")
    for key in keys:
        if why := why_no_name(key):
            raise BadCrew(f"the task name {key[:40]!r} {why}")
        if len(key) > LONGEST_NAME:
            raise BadCrew(
                f"the task name {key[:40]!r}... has {len(key)} characters: at most {LONGEST_NAME} are allowed"
            )
    return keys


def _note_what_is_told(task: Task, doer: Agent | None, work: Work) -> None:
    """Record what a task's prompt uses: inputs in its and its agent's texts, and the context; also on resuming."""
    texts = [task.description, task.expected_output]
    if task.run is None:
        texts += [doer.role, doer.goal, doer.backstory] if doer else []
        if task.context_is_default:
            work.uses.task(EVERYTHING)
    templates = [text for text in texts if "{" in text]
    for name in placeholders(templates) if templates else ():
        work.uses.input(name)


def _filled(task: Task, work: Work) -> Task:
    """Return the task as its code sees it: with its name in the plan, and with the inputs filled into its texts."""
    texts = {"description": task.description, "expected_output": task.expected_output}
    filled = {name: interpolate(text, work.inputs) for name, text in texts.items() if "{" in text}
    return task.model_copy(update={"name": work.key, **filled})


def _timeout(crew: Crew, task: Task) -> float | None:
    """Return the timeout in seconds: the task's own or its agent's limit, whichever is shorter."""
    doer = crew.doer(task)
    limits = [task.timeout, doer.max_execution_time if doer and task.run is None else None]
    return min((limit for limit in limits if limit is not None), default=None)


def _pool(crew: Crew, task: Task) -> str:
    """Return the task's own choice of pool, else a thread for tasks that mostly wait."""
    if task.pool is not None:
        return THREAD if task.pool == "thread" else ""
    if task.run is not None:
        return THREAD if inspect.iscoroutinefunction(task.run) else ""
    doer = crew.doer(task)
    own_model = doer is not None and isinstance(doer.llm, BaseLLM) and not isinstance(doer.llm, LLM)
    return "" if own_model else THREAD


def _is_ours(doer: Agent) -> bool:
    model = model_for(doer.llm)
    return type(model) is LLM and model.journaled_by_transport


def _task(crew: Crew, key: str) -> Task:
    found = crew.by_key.get(key)
    if found is None:
        crew.by_key.update(zip(keys_of(crew), crew.all_tasks, strict=True))
        found = crew.by_key.get(key)
    if found is None and key in kickoff_callbacks.keys_of(crew):
        return _CALLBACKS
    if found is None:
        raise UnknownTask(key)
    return found


def _inputs(crew: Crew) -> frozenset[str]:
    texts = [text for task in crew.tasks for text in (task.description, task.expected_output, task.output_file or "")]
    texts += [text for agent in crew.staff for text in (agent.role, agent.goal, agent.backstory)]
    return frozenset(placeholders(texts))


def _context(task: Task, key: str, by_task: dict[int, str]) -> tuple[str, ...] | None:
    if task.context_is_default:
        return None
    names = []
    for other in task.context or []:
        if id(other) not in by_task:
            raise BadCrew(
                f"task {key!r} has {other.name or 'a task'!r} in its context, which is not one of the crew's tasks"
            )
        names.append(by_task[id(other)])
    return tuple(dict.fromkeys(names))


def _after(crew: Crew, keys: list[str], context: dict[str, tuple[str, ...] | None]) -> dict[str, tuple[str, ...]]:
    """Return the tasks that each task waits for. Refuses contexts that can never be available."""
    named = {key: context[key] or () for key in keys}
    refuse_cycles(named)
    if crew.process is Process.graph:
        return named
    position = {key: i for i, key in enumerate(keys)}
    for key in keys:
        for other in named[key]:
            if position[other] >= position[key]:
                raise BadCrew(
                    f"task {key!r} has {other!r} in its context, which comes later: put it first, or use Process.graph"
                )
    order = sequential_order((key, task.async_execution) for key, task in zip(keys, crew.tasks, strict=True))
    # Tasks that start side by side wait for the same ones. Context among them must be waited for by name.
    beside = {key: order[key] for key, task in zip(keys, crew.tasks, strict=True) if task.async_execution}
    return {
        key: tuple(
            dict.fromkeys([*order[key], *(o for o in named[key] if key in beside and beside.get(o) == order[key])])
        )
        for key in keys
    }


@dataclass(slots=True)
class _TaskAtWork:
    """A task at work: what makes its output."""

    crew: Crew
    task: Task
    doer: Agent | None
    context: TaskContext
    work: Work
    finish: Callable[[str, TaskOutput], TaskOutput]

    def passed(self) -> TaskOutput:
        """Return the first output that passes the guardrails."""
        crew, task, doer, context, work = self.crew, self.task, self.doer, self.context, self.work
        if task.run is not None and not task.checks:
            return self.attempt()
        with native_task.agent_at_work(crew, task, context, work):
            if not native_task.checks_of(task, doer):
                return self.attempt()
            return native_task.checked(task, doer, context, work, self.attempt)

    def attempt(self) -> TaskOutput:
        """Have the task's function, or its agent, make an output."""
        task, context, work = self.task, self.context, self.work
        value = (
            task.run(context)
            if task.run is not None
            else native_task.ask(self.crew, task, context, work, lambda text: interpolate(text, work.inputs))
        )
        return self.output(_as_declared(work.key, task, _given_by(value)))

    def output(self, output: TaskOutput) -> TaskOutput:
        """Return an output with what is known of its task."""
        role = interpolate(self.doer.role, self.work.inputs) if self.doer else ""
        about = {"name": self.work.key, "description": self.context.task.description, "agent": role}
        output.__dict__.update(about)  # it is not shared yet: a copy is most of what a small output costs
        output.model_fields_set.update(about)
        return self.finish(self.work.key, output)


def _as_declared(key: str, task: Task, value: Any) -> TaskOutput:
    """Return the output as declared: text is parsed if a model is declared. A misfit fails the task with the field."""
    output, model = outputs.typed_output(key, value, task.names), task.output_model()
    if model is None:
        return output
    raw, data = output.raw, output.json_dict
    try:
        fitted = model.model_validate_json(raw) if data is None else model.model_validate(data)
    except ValidationError as error:
        raise TaskError(
            f"the output of task {key!r} is not a valid {model.__name__}: {encoding.misfit(error)}"
        ) from None
    if isinstance(value, model) and not encoding.same(value, fitted):  # a kind of that model
        return output.model_copy(update={"json_dict": fitted.model_dump(mode="json")})
    return TaskOutput(raw=raw, json_dict=fitted.model_dump(mode="json"))


def _given_by(value: Any) -> Any:
    """Return the result of a task's code; a coroutine is awaited."""
    if type(value) is str or not inspect.isawaitable(value):  # to ask that of a text takes three calls
        return value
    waiter = waiting.here()
    return (asyncio.run if waiter is None else waiter.run_coroutine)(awaited(value))
