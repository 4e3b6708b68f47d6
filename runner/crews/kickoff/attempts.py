"""One task in this process: its attempts, its timeout, and what of it is kept for a checkpoint."""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from runner.bundles import task_files
from runner.bundles.target import root_of
from runner.bundles.task_files import TaskFiles
from runner.core import output as outputs
from runner.core.errors import Interrupted
from runner.core.idempotency import originating
from runner.core.ledger import NO_TOKENS, STEP, Entry, Tally, Usage
from runner.core.output import TaskOutput, UsageMetrics
from runner.core.plan import Plan
from runner.core.plan.dependencies import Used
from runner.crews.crew import Crew
from runner.engine import local
from runner.engine.adapter import Adapter
from runner.engine.tool_events import ToolObserver
from runner.engine.work import Conversation, Work
from runner.journal.cancellation.gate import Gate
from runner.journal.cancellation.timing import timed
from runner.journal.journal import Journal
from runner.journal.nested import ChildJournal
from runner.llm.recording import journaled
from runner.snapshots.progress import Progress, TaskProgress


class StateGate(Gate):
    """A write to the store is a change of the state: it happens with its event, at one moment."""

    def __init__(self, lock: contextlib.AbstractContextManager[Any]) -> None:
        super().__init__()
        self._state_lock = lock

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """The task changes the state: no stop breaks in, and no checkpoint is written in between."""
        with super().write(), self._state_lock:
            yield


class Steps:
    """The steps of one task, in the state. They are kept over its attempts."""

    def __init__(
        self, progress: TaskProgress, nest: ChildJournal | None = None, key: str = "", usage: UsageMetrics | None = None
    ) -> None:
        self._progress, self._nest, self._under = progress, nest, f"{key}:"
        self._usage = usage

    @property
    def recorded(self) -> dict[str, str]:
        """Those that are done."""
        outer = self._nest.recorded(self._under) if self._nest is not None else {}
        return {**outer, **self._progress.steps}

    def begin_step(self, entry: Entry = STEP, *, instead_of: Sequence[Entry] = (), held: bool = False) -> None:
        """Nothing can be in doubt in one process; in a task around it, it can."""
        if self._nest is not None:
            self._nest.begin(entry, instead_of=instead_of, held=held)

    def leaves(self, entry: Entry) -> None:
        """A call that was held goes out."""
        if self._nest is not None:
            self._nest.leaves(entry)

    def drop_step(self, entry: Entry = STEP, *, held: bool = False) -> None:
        """It raised; nothing to keep."""
        if self._nest is not None:
            self._nest.drop(entry, held=held)

    @property
    def can_wait(self) -> bool:
        """Here the terminal is asked; inside of a task of the fleet, that task waits."""
        return self._nest is not None and self._nest.can_wait

    def place(self, step: str) -> str:
        """A step's name in the journal of the task around it, if there is one."""
        return self._nest.place(f"{self._under}{step}") if self._nest is not None else step

    def record_step(
        self, step: str, value: str, *, entry: Entry | None = STEP, usage: Usage = NO_TOKENS, **about: Any
    ) -> None:
        """Keep it, and with it the task around it, if there is one."""
        self._progress.steps[step] = value
        if self._usage is not None and entry is not None and entry.kind == "model":
            self._usage.add(usage.prompt_tokens, usage.completion_tokens)
        if self._nest is not None:
            self._nest.record(f"{self._under}{step}", value, entry=entry, usage=usage, **about)

    def end(self, replayed: Tally) -> None:
        """The task is done: what was replayed since the last record counts in the task around it."""
        if self._nest is not None:
            self._nest.replayed(replayed)


class KeptConversation(Conversation):
    """A conversation in the state."""

    def __init__(self, progress: TaskProgress, lock: contextlib.AbstractContextManager[Any]) -> None:
        super().__init__()
        self.messages = progress.messages
        self._lock = lock

    def say(self, *messages: dict[str, Any]) -> None:
        """Add messages; a checkpoint has all of them or none."""
        with self._lock:
            super().say(*messages)


class Attempts:
    """What the attempts at one task share."""

    def __init__(
        self,
        adapter: Adapter,
        crew: Crew,
        plan: Plan,
        inputs: Mapping[str, Any],
        done: Mapping[str, TaskOutput],
        lock: contextlib.AbstractContextManager[Any],
        progress: Progress,
        nest: ChildJournal | None,
    ) -> None:
        self._adapter, self._crew, self._plan = adapter, crew, plan
        self._inputs, self._done, self._lock, self._progress = inputs, done, lock, progress
        self._nest = nest
        self.usage = UsageMetrics()
        """What was spent."""
        self.origin = ""
        """What the idempotency keys of its tasks begin with."""
        self._gates = set[StateGate]()
        self._stop: Interrupted | None = None
        self._stopped = threading.Event()

    def stop(self, why: str) -> None:
        """Let every task end at its next step; what is in a step ends that first, and it is recorded."""
        self._stop = Interrupted(why)
        for gate in list(self._gates):
            gate.ask(self._stop)
        self._stopped.set()

    def perform(self, key: str) -> tuple[TaskOutput, Used]:
        """The output of the first attempt that gives one, and what that used. Raises what the last one raised."""
        progress = self._progress.task(key)
        retries = self._adapter.retry(self._crew, key)
        return local.until_done(partial(self._once, key, progress), retries, self._stopped.wait)

    def _once(self, key: str, progress: TaskProgress, failures: int) -> tuple[TaskOutput, Used]:
        gate, steps, task = (
            StateGate(self._lock),
            Steps(progress, self._nest, key, self.usage),
            self._crew.by_key.get(key),
        )
        journal = Journal(steps.recorded, steps, gate, watched=True, replay_from_start=not progress.messages)
        journal.pacing = lambda: self._crew.pace if isinstance(self._crew, Crew) else None
        self._gates.add(gate)
        if self._stop is not None:
            gate.ask(self._stop)

        def fetch(keys: Sequence[str]) -> Mapping[str, TaskOutput]:
            return {one: self._done[one] for one in keys}

        def note(kind: str, text: str) -> None:  # noqa: ARG001 - there is no record
            if kind == "task_skipped":
                with self._lock:
                    self._progress.skipped.add(key)

        work = Work(
            run_id="here",
            branch="main",
            attempt=failures + 1,
            key=key,
            plan=self._plan,
            inputs=self._inputs,
            journal=journal,
            fetch=fetch,
            note=note,
            conversation=KeptConversation(progress, self._lock),
            watch=lambda name, function: ToolObserver(task, name, function),
            failed=failures,
        )
        planned = self._plan.by_key[key]
        here = task_files.current.set(
            task_files.current.get() or TaskFiles(partial(root_of, getattr(task, "run", None)), Path.cwd)
        )
        try:
            gate.check()
            with timed(gate, planned.timeout), journaled(journal), originating(f"{self.origin}:{key}"):
                stored = self._adapter.perform(self._crew, work)
        finally:
            task_files.current.reset(here)
            journal.close()
            self._gates.discard(gate)
            steps.end(journal.take_replayed())
        used = work.uses.found(planned.context or (), lambda: len(self._plan.earlier(key)))
        return as_output(self._crew, key, json.loads(stored)), used


def as_output(crew: Crew, key: str, record: Mapping[str, Any]) -> TaskOutput:
    """A task's output from its record, with what the code at hand adds: the model, the agent's role, its texts."""
    task = crew.by_key[key]
    doer = crew.doer(task)
    role = doer.role if doer else ""
    about = {"description": task.description, "expected_output": task.expected_output, "agent": role}
    output = outputs.from_record(record, task.names(), name=key, **about)
    output.pydantic = outputs.fitted(key, task.output_model(), output.json_dict)
    return output
