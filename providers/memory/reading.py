"""Reads runs from memory, for clients, and branches, for workers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.core.errors import NotFound, no_run
from runner.core.ledger import LedgerRow
from runner.core.plan import Plan, branching
from runner.core.plan.expansion import Committed as Grown
from runner.core.plan.expansion import Shared
from runner.core.states import RunStatus, TaskState
from runner.providers.memory.events import place_of
from runner.providers.memory.state import Branch, Memory, Run, atomic
from runner.providers.records import (
    COUNTERS,
    BranchRecord,
    CheckpointRecord,
    Committed,
    Event,
    InFlight,
    Question,
    RunRecord,
    committed_record,
    files_in,
    tools_by_name,
)


@atomic
class Reader:
    """Reads the runs of the store in memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    # -- runs

    def _run(self, run_id: str) -> Run:
        found = self._memory.run(run_id)
        if found is None:
            raise no_run(run_id)
        return found

    def _branch(self, run_id: str, name: str) -> tuple[Run, Branch]:
        run = self._run(run_id)
        if name not in run.branches:
            raise NotFound(f"run {run_id} has no branch {name!r}; there are: {', '.join(self.branches(run_id))}")
        return run, run.branches[name]

    def get(self, run_id: str) -> RunRecord:
        """Return the run. Raises `NotFound`."""
        return _run_record(self._run(run_id))

    def newest(self, limit: int = 50) -> list[RunRecord]:
        """Return the newest runs, newest first."""
        there = [run for run_id in list(self._memory.runs) if (run := self._memory.run(run_id)) is not None]
        return [_run_record(run) for run in sorted(there, key=lambda run: run.created_at)[-limit:][::-1]]

    def status(self, run_id: str, branch: str | None = None) -> RunStatus:
        """Where the run stands, which is where its current branch does; or one branch. Raises `NotFound`."""
        return self._run(run_id).status if branch is None else self._branch(run_id, branch)[1].status

    def field(self, run_id: str, name: str) -> str:
        """One field of a run; "" if it is not there."""
        run = self._memory.run(run_id)
        return run.fields.get(name, "") if run is not None else ""

    def plan(self, run_id: str) -> Plan:
        """Return the run's plan. Raises `NotFound`."""
        return self._run(run_id).plan

    def branch_plan(self, run_id: str, branch: str) -> Plan:
        """What a branch does of the run's plan. Raises `NotFound`."""
        run, found = self._branch(run_id, branch)
        return branching.branch_plan(run.plan, found.rerun_mask)

    def existing(self, run_ids: Sequence[str]) -> set[str]:
        """Return those of these runs that the store has."""
        return {run_id for run_id in run_ids if self._memory.run(run_id) is not None}

    # -- branches

    def branches(self, run_id: str) -> list[str]:
        """Return the run's branches, main first."""
        return sorted(self._run(run_id).branches, key=lambda name: (name != "main", name))

    def branch(self, run_id: str, name: str) -> BranchRecord:
        """Return one branch. Raises `NotFound`."""
        return _branch_record(self._branch(run_id, name)[1])

    def parent(self, run_id: str, branch: str) -> str:
        """The branch that this one left; "" for none."""
        found = self._memory.branch(run_id, branch)
        return found.parent if found is not None else ""

    def committed(self, run_id: str, branch: str, upto: int | None = None) -> dict[str, Committed]:
        """The outputs of a branch by task: its own, and what it sees of its parent's from before it left it."""
        run, _ = self._branch(run_id, branch)
        seen = branching.visible(run.lines(branch), float("inf") if upto is None else upto)
        return {
            task: committed_record(json.loads(run.branches[where].outputs[task].text), where)
            for task, (where, _) in seen.items()
        }

    def stored_outputs(self, run_id: str, branch: str, tasks: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The records of tasks that are surely committed there, each from the nearest branch that has it."""
        _, here = self._branch(run_id, branch)
        found = {task: here.output(task) for task in tasks}
        return {task: json.loads(output.text) for task, output in found.items() if output is not None}

    def outputs_of(self, run_id: str, branch: str, tasks: Sequence[str]) -> dict[str, Committed]:
        """The outputs of tasks that are surely committed there."""
        return {task: committed_record(one) for task, one in self.stored_outputs(run_id, branch, tasks).items()}

    def files_left(self, run_id: str, branch: str) -> list[dict[str, Any]]:
        """The files that the committed tasks of a branch left, as they are stored, oldest first."""
        run, _ = self._branch(run_id, branch)
        seen = branching.visible(run.lines(branch))
        left = [task for task, (_, done) in seen.items() if done.used.files]
        return files_in(self.stored_outputs(run_id, branch, left).values())

    def in_flight(self, run_id: str, branch: str) -> list[InFlight]:
        """Return the tasks of a branch that are neither waiting nor committed."""
        _, found = self._branch(run_id, branch)
        return [
            InFlight(
                key,
                task.state.value,
                task.attempt,
                task.worker or task.failed_on,
                task.error,
                task.trace,
                task.began,
                task.ended,
            )
            for key, task in sorted(found.tasks.items())
        ]

    def questions(self, run_id: str, branch: str) -> list[Question]:
        """Return the unanswered questions of a branch's tasks."""
        _, found = self._branch(run_id, branch)
        return [
            Question(key, task.step, json.loads(task.question))
            for key, task in sorted(found.tasks.items())
            if task.state is TaskState.asked
        ]

    def checkpoints(self, run_id: str, branch: str) -> list[CheckpointRecord]:
        """Return the checkpoints that a branch keeps, oldest first."""
        return list(self._branch(run_id, branch)[1].checkpoints)

    # -- the account, and events

    def ledger(self, run_id: str) -> list[LedgerRow]:
        """The run's calls of models, by branch, task, agent and model."""
        found = [LedgerRow(*key, *counts) for key, counts in self._run(run_id).ledger.items()]
        return sorted(found, key=lambda line: (line.branch != "main", line.branch, line.task, line.agent, line.model))

    def tools(self, run_id: str) -> dict[str, dict[str, int]]:
        """How often each tool was used (paid, replayed, in_doubt), by its name."""
        return tools_by_name(self._run(run_id).counters.items())

    def events(self, run_id: str, after: str = "0", block_ms: int | None = None) -> Iterator[Event]:
        """The events after an id; with ``block_ms``, waits that long for the first."""
        if block_ms is not None:
            self._memory.changed.wait_for(lambda: self._after(run_id, after), block_ms / 1000)
        return iter(self._after(run_id, after))

    def _after(self, run_id: str, after: str) -> list[Event]:
        run = self._memory.run(run_id)
        since = place_of(after)
        return [event for event in run.events if place_of(event.id) > since] if run is not None else []


@atomic
class GrowingBranch:
    """One branch, to read: what the tasks of a plan that grows share, and what was committed on it, in order."""

    def __init__(self, reader: Reader, memory: Memory, run_id: str, name: str) -> None:
        self._memory = memory
        self._reader = reader
        self._run_id = run_id
        self._name = name

    def initial_state(self) -> Mapping[str, Any]:
        """What the adapter said of the run when it was submitted."""
        beginning: Mapping[str, Any] = json.loads(self._reader.field(self._run_id, "beginning") or "{}")
        return beginning

    def shared(self) -> Shared:
        """Return the texts as they stand now."""
        branch = self._memory.branch(self._run_id, self._name)
        return Shared(branch.version, dict(branch.shared)) if branch is not None else Shared()

    def records(self, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Stored outputs by key, each from the nearest branch that has it."""
        return self._reader.stored_outputs(self._run_id, self._name, keys)

    def history(self, upto: int | None = None) -> list[Grown]:
        """All that was committed on the branch and, before it left them, on its parents, in order."""
        here = self._memory.branch(self._run_id, self._name)
        found: list[Grown] = []
        for branch, limit in reversed(list(here.ancestry())) if here is not None else ():
            stored = {task: json.loads(output.text) for task, output in branch.outputs.items()}
            laid = json.loads(branch.laid)
            if branch.edited or laid:
                found.append(Grown("", inputs=laid, edits={task: stored[task] for task in branch.edited}))
            last = min(limit, float("inf") if upto is None else upto)
            found += [
                Grown(task, stored[task])
                for task, output in branch.outputs.items()
                if task not in branch.edited and output.seq <= last
            ]
        return found


def _run_record(run: Run) -> RunRecord:
    return RunRecord(
        id=run.id,
        status=run.status,
        crew=run.fields.get("crew", ""),
        branch=run.branch,
        created_at=run.created_at,
        ended_at=run.ended_at,
        error=run.error,
        queue=run.fields.get("queue", ""),
        bundle=run.fields.get("bundle", ""),
        plan_digest=run.fields.get("plan", ""),
        inputs=json.loads(run.fields.get("inputs", "{}")),
        standin=run.fields.get("standin", ""),
        **{name: run.counters[name] for name in (*COUNTERS, "recoveries")},
    )


def _branch_record(branch: Branch) -> BranchRecord:
    return BranchRecord(
        name=branch.name,
        status=branch.status,
        seq=branch.seq,
        left=branch.left,
        parent=branch.parent,
        parent_seq=branch.parent_seq,
        checkpoint=branch.start,
        head=branch.head or branch.start,
        error=branch.error,
        created_at=branch.created_at,
        ended_at=branch.ended_at,
        inputs=json.loads(branch.inputs),
    )
