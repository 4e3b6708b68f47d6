"""A kickoff's tasks as the engine sees them, and the environment of an attempt.

What comes of a task is in the kickoff's `Progress`, of which checkpoints are pictures.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from runner.bundles import task_files
from runner.bundles.target import root_of
from runner.bundles.task_files import LocalFiles
from runner.core import output as outputs
from runner.core.jobs import Claim, Job
from runner.core.ledger import Counters
from runner.core.output import TaskOutput, UsageMetrics
from runner.core.plan import branching, frontier
from runner.crews.crew import Crew
from runner.crews.kickoff.chunks import Chunks
from runner.crews.native_task import describe
from runner.engine.attempt import Loaded
from runner.engine.decisions import Commit, Decision, Retry, Stopped
from runner.engine.local import LocalAttempt, LocalTasks, Steps
from runner.engine.tool_events import ToolObserver
from runner.engine.work import Conversation
from runner.events.bus import event_bus
from runner.events.work_events import TaskCompletedEvent, TaskFailedEvent
from runner.journal.journal import Journal
from runner.journal.nested import ChildJournal
from runner.journal.rate_limit import Pacer
from runner.snapshots.progress import Progress, TaskProgress


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


class CrewTasks(LocalTasks):
    """The tasks of one kickoff of a crew.

    ``origin`` is what the keys of its tools begin with; ``usage`` counts the tokens.
    """

    def __init__(
        self,
        loaded: Loaded,
        inputs: dict[str, Any],
        progress: Progress,
        lock: contextlib.AbstractContextManager[Any],
        nest: ChildJournal | None,
    ) -> None:
        super().__init__(partial(CrewAttempt, self), lock, nest)
        self.loaded, self.inputs, self.progress = loaded, inputs, progress
        self.adapter, self.crew_name, self.plan_digest = loaded.adapter.name, loaded.plan.crew, loaded.plan.digest
        self.crew: Crew = loaded.crew
        self.origin = ""
        self.usage = UsageMetrics()
        self.chunks = Chunks(nest)

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


class CrewAttempt(LocalAttempt):
    """An attempt at a task of a kickoff, with the caller's crew and in the working directory of the process."""

    def __init__(self, tasks: CrewTasks, claim: Claim) -> None:
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
            tasks.nest.record(f"={key}", decision.output)
        output = as_output(tasks.crew, key, json.loads(decision.output))
        with tasks.lock:
            task.output = output
            tasks.progress.finish(key, output, decision.used)
            event_bus.emit(task, TaskCompletedEvent(task=task, task_name=key, output=output))
            tasks.done[key] = output
            tasks.unlock(decision.unlocks)

    def ended(self, decision: Decision) -> None:
        """Report that the task failed, if no other attempt follows."""
        if isinstance(decision, Stopped) and not isinstance(decision, Retry) and decision.error is not None:
            reason = describe(decision.error, *self._tasks.crew.staff)
            event_bus.emit(self._task, TaskFailedEvent(task=self._task, task_name=self._key, error=reason))


def as_output(crew: Crew, key: str, record: Mapping[str, Any]) -> TaskOutput:
    """Build a task's output from its record, and from its code: the model, the agent's role, the texts."""
    task = crew.by_key[key]
    doer = crew.doer(task)
    role = doer.role if doer else ""
    about = {"description": task.description, "expected_output": task.expected_output, "agent": role}
    output = outputs.from_record(record, task.names(), name=key, **about)
    output.pydantic = outputs.fitted(key, task.output_model(), output.json_dict)
    return output
