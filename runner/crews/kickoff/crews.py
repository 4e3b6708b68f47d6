"""`Crew.kickoff()` in this process."""

import contextlib
import contextvars
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from runner.bundles import task_files
from runner.bundles.target import root_of
from runner.bundles.task_files import LocalFiles
from runner.core import output as outputs
from runner.core.errors import BadInput
from runner.core.idempotency import origin
from runner.core.inputs import refuse_missing
from runner.core.interpolation import interpolate
from runner.core.jobs import Claim, Job
from runner.core.ledger import Counters
from runner.core.output import TaskOutput, UsageMetrics
from runner.core.plan import Plan, branching, frontier
from runner.core.plan.dependencies import EDITED, UNKNOWN
from runner.crews.adapter import NATIVE
from runner.crews.crew import Crew, CrewOutput, output_of
from runner.crews.kickoff.chunks import Chunks
from runner.crews.native_task import describe
from runner.crews.snapshot import jsonable
from runner.engine import local
from runner.engine.attempt import Loaded
from runner.engine.decisions import Commit, Decision, Retry, Stopped
from runner.engine.local import LocalAttempt, LocalTasks, Steps
from runner.engine.tool_events import ToolObserver
from runner.engine.work import Conversation
from runner.events import work_events as events
from runner.events.bus import event_bus
from runner.events.scope import push_event_scope, resume_task_scope
from runner.journal.current_journal import nest
from runner.journal.journal import Journal
from runner.journal.rate_limit import Pacer
from runner.snapshots.progress import Progress, TaskProgress
from runner.snapshots.resolve import inside, kicked_off
from runner.snapshots.resuming import close_interrupted, is_open
from runner.snapshots.runtime import RuntimeState
from runner.snapshots.scope import running
from runner.streaming import nested_kickoffs

_STAY_OPEN = frozenset({"task_started", "agent_execution_started"})


def kickoff(
    crew: Crew,
    inputs: Mapping[str, Any] | None = None,
    input_files: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> CrewOutput:
    """Run a crew in this process. If a task fails, its error is raised once no other task is in flight.

    Tasks that have an output in ``progress`` are not run again. A restored crew has its ``checkpoint_inputs``, with new
    ones merged over them, and with what ``before_kickoff_callbacks`` changed.
    """
    crew.adopt()
    new = jsonable(inputs or {})
    with nested_kickoffs.inside(), running(crew, new) as state, kicked_off(crew):
        if input_files:
            raise BadInput("input_files are not supported yet: give their paths as inputs, and read them in a task")
        plan = NATIVE.plan_of_tasks(crew, "crew")
        crew.file_keys()
        known = progress or (state.progress.get(id(crew)) if state is not None and state.restored else None)
        progress = known or Progress(given=new)
        edited = (crew.checkpoint_inputs or {}) if known is not None else {}
        given = {**progress.inputs, **edited, **(inputs or {})}
        if progress.kickoff_event_id is None:
            for callback in crew.before_kickoff_callbacks:
                changed = callback(given)
                given = given if changed is None else dict(changed)
        refuse_missing(plan.inputs, given)
        run = CrewRun(Loaded(crew, NATIVE, plan), given, state, progress)
        run.begin(restored=known is not None)
        return run.complete()


class CrewRun(LocalTasks):
    """One kickoff of a crew, with its `Progress`. ``origin`` begins the tools' keys; ``usage`` counts the tokens."""

    def __init__(self, loaded: Loaded, inputs: dict[str, Any], state: RuntimeState | None, progress: Progress) -> None:
        lock: contextlib.AbstractContextManager[Any] = state.lock if state is not None else threading.RLock()
        super().__init__(partial(CrewAttempt, self), lock, nest("crew", loaded.plan.digest, inputs))
        self.loaded, self.inputs, self.progress = loaded, inputs, progress
        self.adapter, self.crew_name, self.plan_digest = loaded.adapter.name, loaded.plan.crew, loaded.plan.digest
        self.crew: Crew = loaded.crew
        self.origin = ""
        self.usage = UsageMetrics()
        self.chunks = Chunks(self.nest)
        self._state = state

    def ready(self) -> list[Job]:
        """Return the tasks that may run first. In a restored crew, tasks to re-run may precede finished ones."""
        plan = self.loaded.plan
        if self.done:
            self.rerun_mask = branching.pack(plan, plan.by_key.keys() - self.done.keys())
        self.unlock(frontier(branching.branch_plan(plan, self.rerun_mask), self.done.keys()))
        return self.take()

    def steps(self, key: str) -> Steps:
        """Return the store for the steps of this task."""
        return Steps(self.progress.task(key).steps, self.nest, key, self.usage)

    def begin(self, *, restored: bool) -> None:
        """Restore the finished tasks, and emit that the kickoff starts unless its scope is open from before."""
        crew, progress = self.crew, self.progress
        with self.lock:
            if restored:
                forked = self.inputs if self._state is not None and self._state.forked else None
                self.done.update(still_valid(crew, self.loaded.plan, progress, forked))
            elif self.nest is not None:
                for key, text in self.nest.recorded("=").items():
                    self.done[key] = as_output(crew, key, json.loads(text))
            for key, task in crew.by_key.items():
                task.output = self.done.get(key)
            progress.inputs = self.inputs
            crew.checkpoint_inputs = dict(self.inputs)
            progress.outputs = dict(self.done)
            if self._state is not None:
                self._state.progress[id(crew)] = progress
            if is_open(self._state, progress.kickoff_event_id):
                push_event_scope(progress.kickoff_event_id or "", "crew_kickoff_started")
                crew.kickoff_event_id = progress.kickoff_event_id
                self.origin = self._origin()
                return
            event = events.CrewKickoffStartedEvent(crew_name=crew.name, crew=crew, inputs=dict(self.inputs))
            crew.kickoff_event_id = crew.checkpoint_kickoff_event_id = event.event_id
            progress.kickoff_event_id = event.event_id
            self.origin = self._origin()
            event_bus.emit(crew, event)
        self.chunks.republish(crew, self.done)

    def _origin(self) -> str:
        """Return the prefix of its tools' keys: the same on resuming, another one on another branch."""
        outer = origin()
        if outer and self.nest is not None:
            return f"{outer}/{self.nest.name}"
        branch = self._state.branch if self._state is not None else "main"
        return f"{self.progress.kickoff_event_id}" + (f":{branch}" if branch != "main" else "")

    def complete(self) -> CrewOutput:
        """Run what is left, and emit how the kickoff ended. Returns the crew's output."""
        crew = self.crew
        try:
            self._do_tasks()
            for key, name in self.loaded.adapter.output_files(crew).items():
                path = Path(interpolate(name, self.inputs))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self.done[key].raw, "utf-8")
            result = output_of(crew, self.done, self.loaded.plan.result, self.usage)
            for callback in crew.after_kickoff_callbacks:
                changed = callback(result)
                result = result if changed is None else changed
        except BaseException as error:
            reason = describe(error, *crew.staff)
            event_bus.emit(crew, events.CrewKickoffFailedEvent(crew_name=crew.name, crew=crew, error=reason))
            raise
        event_bus.emit(crew, events.CrewKickoffCompletedEvent(crew_name=crew.name, crew=crew, output=result))
        return result

    def _do_tasks(self) -> None:
        threads = max(1, min(32, len(self.loaded.plan.tasks) - len(self.done)))
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="task") as pool:

            def begin(job: Job) -> "Future[list[Job]]":
                # Each task has a context of its own: what one opens and closes is not open in another.
                return pool.submit(contextvars.copy_context().run, self._one, job)

            try:
                local.perform(begin, self.ready())
            except BaseException:  # Ctrl-C, wherever it comes: nothing more is paid for
                self.stops.stop("the kickoff was interrupted")
                raise

    def _one(self, job: Job) -> list[Job]:
        """Run one task, and return those that are ready now."""
        task = self.crew.by_key[job.task]
        with inside(task), self.chunks.of(job.task):
            with self.lock:
                if resume_task_scope(str(task.id)):
                    close_interrupted(task, str(task.id), but=_STAY_OPEN)
                else:
                    event_bus.emit(task, events.TaskStartedEvent(task=task, task_name=job.task, context=None))
            return self.perform(job)


class KeptConversation(Conversation):
    """A conversation whose messages are part of the kickoff's state."""

    def __init__(self, progress: TaskProgress, lock: contextlib.AbstractContextManager[Any]) -> None:
        super().__init__()
        self.messages = progress.messages
        self._lock = lock

    def say(self, *messages: dict[str, Any]) -> None:
        """Add messages, under the lock: a checkpoint has all of them or none."""
        with self._lock:
            super().say(*messages)


class CrewAttempt(LocalAttempt):
    """An attempt at a task of a kickoff, with the caller's crew and in the working directory of the process."""

    def __init__(self, tasks: CrewRun, claim: Claim) -> None:
        key = claim.job.task
        super().__init__(tasks, claim, tasks.loaded.adapter.retry(tasks.crew, key))
        self.origin = f"{tasks.origin}:{key}"
        self.conversation = KeptConversation(tasks.progress.task(key), tasks.lock)
        self._tasks, self._key, self._task = tasks, key, tasks.crew.by_key[key]
        self.watch = partial(ToolObserver, self._task)

    def load(self, journal: Journal) -> Loaded:
        """Return the crew and its plan. Handlers receive its calls; a restored conversation continues."""
        journal.watched, journal.replay_from_start = True, not self.conversation.messages
        if task_files.current.get() is None:
            task_files.current.set(LocalFiles(partial(root_of, getattr(self._task, "run", None))))
        return self._tasks.loaded

    def outputs(self, keys: Sequence[str]) -> Mapping[str, TaskOutput]:
        """Return the outputs of these tasks."""
        return {key: self._tasks.done[key] for key in keys}

    def pacer(self) -> Pacer:
        """Return the rate limit of the crew's model calls."""
        return self._tasks.crew.pace

    def note(self, kind: str, text: str) -> None:  # noqa: ARG002 - there is no record
        """Remember that the task was skipped. Other lines are not kept here."""
        if kind == "task_skipped":
            self._tasks.progress.skipped.add(self._key)

    def record(self, decision: Decision, replayed: Counters) -> None:
        """Store the output and emit its event under the state's lock, so that a checkpoint has both or neither."""
        tasks, key, task = self._tasks, self._key, self._task
        self._steps.end(replayed)
        if not isinstance(decision, Commit):
            return
        if tasks.nest is not None:
            tasks.chunks.record(key)
            tasks.nest.record_step(f"={key}", decision.output, entry=None)  # its own steps are counted
        output = as_output(tasks.crew, key, json.loads(decision.output))
        with tasks.lock:
            task.output = output
            tasks.progress.finish(key, output, decision.used)
            event_bus.emit(task, events.TaskCompletedEvent(task=task, task_name=key, output=output))
            tasks.done[key] = output
            tasks.unlock(decision.unlocks)

    def ended(self, decision: Decision) -> None:
        """Report that the task failed, if no other attempt follows."""
        if isinstance(decision, Stopped) and not isinstance(decision, Retry) and decision.error is not None:
            reason = describe(decision.error, *self._tasks.crew.staff)
            event_bus.emit(self._task, events.TaskFailedEvent(task=self._task, task_name=self._key, error=reason))


def as_output(crew: Crew, key: str, record: Mapping[str, Any]) -> TaskOutput:
    """Build a task's output from its record, and from its code: the model, the agent's role, the texts."""
    task = crew.by_key[key]
    doer = crew.doer(task)
    role = doer.role if doer else ""
    about = {"description": task.description, "expected_output": task.expected_output, "agent": role}
    output = outputs.from_record(record, task.names(), name=key, **about)
    output.pydantic = outputs.fitted(key, task.output_model(), output.json_dict)
    return output


def still_valid(crew: Crew, plan: Plan, progress: Progress, inputs: Mapping[str, Any] | None) -> dict[str, TaskOutput]:
    """Return the outputs of a restored crew that remain valid, with ``inputs`` of a fork.

    Tasks that used an edited or removed output, or a changed input, run again, and so do the tasks after them. Tasks in
    flight resume if what they work on is the same.
    """
    stored = {
        key: as_edited(key, progress.outputs.get(key), task.output)
        for key, task in crew.by_key.items()
        if task.output is not None
    }
    removed = progress.outputs.keys() - stored.keys()
    edited = {key for key, output in stored.items() if not same(progress.outputs.get(key), output)}
    changed = branching.changed_inputs(progress.inputs, inputs) if inputs is not None else {}
    used = {key: progress.used.get(key, UNKNOWN) for key in progress.outputs}
    for key in edited:
        progress.used[key] = EDITED
    what = frozenset(edited | removed), frozenset(changed)
    again = branching.invalidated(plan, used, *what)
    in_flight = frozenset(progress.tasks)
    for key in again | removed | (in_flight - branching.resumable(plan, in_flight, *what)):
        progress.drop(key)
    return {key: as_output(crew, key, outputs.record(one)) for key, one in stored.items() if key not in again}


def as_edited(key: str, before: TaskOutput | None, now: TaskOutput) -> TaskOutput:
    """Return an output of which a person edited the text, JSON or model, with the others derived. Raises `BadInput`."""
    if before is not None and before.json_dict is not None and now.pydantic is not None and same(before, now):
        with contextlib.suppress(BadInput):
            if outputs.fitted(key, type(now.pydantic), before.json_dict) == now.pydantic:
                return now
        raw, data = outputs.from_value(now.pydantic)
        return outputs.plain(now.model_copy(update={"raw": raw, "json_dict": data}))
    if before is None or same(before, now):
        return now
    if before._value_types is None and now.raw != before.raw and now.json_dict != before.json_dict:
        return now
    return outputs.edited(key, before, now.raw if now.json_dict == before.json_dict else now.json_dict)


def same(one: TaskOutput | None, other: TaskOutput) -> bool:
    """Whether two outputs have the same text and JSON."""
    return one is not None and (one.raw, one.json_dict) == (other.raw, other.json_dict)
