"""The client's side of a store in memory: create, cancel, resume and fork a run, answer its questions."""

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from runner.core.errors import Conflict, NotFound
from runner.core.plan import Plan, PlannedTask, branching, frontier
from runner.core.plan.dependencies import EDITED
from runner.core.states import RunStatus, TaskState
from runner.providers.memory import transitions
from runner.providers.memory.events import Relatives, emit
from runner.providers.memory.reading import Reader
from runner.providers.memory.state import Branch, Bundle, Output, Run, Task, atomic
from runner.providers.memory.transitions import begin, carry_journal, checkpoint, recall, send, unlock, wait_if_asked
from runner.providers.records import CheckpointRecord, Position, Question, Regrown, RunRecord, committed_record

BUNDLE_GRACE_MS = 3_600_000


@atomic
class MemoryRuns(Reader):
    """The runs in a store."""

    # -- accepting

    def put_bundle(self, sha: str, data: bytes | None) -> bool:
        """Store a bundle, or with ``data=None`` ask if it is there. Returns whether it is there now."""
        found = self._memory.bundle(sha)
        if found is None or found.data is None:
            if data is None:
                return False
            found = self._memory.bundles.setdefault(sha, Bundle(None))
            found.data = bytes(data)
        if not found.active:
            found.expires_at = max(found.expires_at or 0, self._memory.now() + BUNDLE_GRACE_MS)
        return True

    def drop_bundle(self, sha: str, damaged: bytes) -> bool:
        """Forget a bundle's data, if that is what is stored: it can be put again then. Returns whether it was."""
        found = self._memory.bundle(sha)
        if found is None or found.data != damaged:
            return False
        found.data = None
        return True

    def bundle(self, sha: str) -> bytes:
        """Return a bundle's data. Raises `NotFound`."""
        found = self._memory.bundle(sha)
        if found is None or found.data is None:
            raise NotFound(f"the code of this run (bundle {sha[:12]}) is no longer in the store: submit the crew again")
        return found.data

    def create(self, run_id: str, plan: Plan, fields: Mapping[str, str]) -> str:
        """Accept a run with its first frontier. Returns "created", "exists" or "no bundle"."""
        if self._memory.run(run_id) is not None:
            return "exists"
        if not self._memory.has_code(fields["bundle"]):
            return "no bundle"
        run = self._memory.runs[run_id] = Run(self._memory, run_id, plan, dict(fields), self._memory.now())
        transitions.use_bundle(run)
        run.branches["main"] = branch = Branch(run, "main", left=len(plan.tasks))
        run.planned = len(plan.tasks)
        branch.scope = emit(branch, "crew_kickoff_started")
        checkpoint(branch, "crew_kickoff_started")
        for planned in frontier(plan, frozenset()):
            unlock(branch, planned)
        return "created"

    # -- steering

    def cancel(self, run_id: str, reason: str, branch: str | None = None) -> str:
        """Cancel a run, or one branch. See `runner.engine.ports.Runs.cancel`."""
        run = self._memory.run(run_id)
        if run is None or (branch and branch not in run.branches):
            return "gone"
        asked = branch or run.branch
        was = run.branches[asked].status.value
        live = [one for name, one in run.branches.items() if one.live and branch in (None, "", name)]
        stopped = {one.name: one.status.value for one in live}
        for one in live:
            recall(one)
            emit(one, "run_cancelled", "", Relatives(started=one.scope), reason=reason)
            transitions.finish(one, RunStatus.cancelled, reason)
        if stopped and not run.live:
            transitions.take_out(run)
        return stopped.get(asked) or next(iter(stopped.values()), was)

    def prune(self, run_id: str, branch: str, keep: int) -> int:
        """Keep the newest ``keep`` checkpoints of a branch, exactly. Returns how many went. Raises `NotFound`."""
        return transitions.prune(self._branch(run_id, branch)[1], keep)

    def answer(self, run_id: str, branch: str, question: Question, text: str) -> str:
        """Answer a question. See `runner.engine.ports.Runs.answer`."""
        found = self._memory.branch(run_id, branch)
        if found is None:
            return "gone"
        task = found.tasks.get(question.task)
        if task is None or task.state is not TaskState.asked:
            return "not asked"
        if task.step != question.step:
            return "changed"
        if not found.live:
            return found.status.value
        found.journals.setdefault(question.task, {})[question.step] = text
        task.step = task.question = ""
        found.asked -= 1
        if found.status is RunStatus.waiting:
            found.status = RunStatus.running
            if found.run.branch == branch:
                found.run.status = RunStatus.running
        emit(found, "task_answered", task.key, Relatives(task.started))
        send(task)
        return "answered"

    def resume(
        self,
        run: RunRecord,
        branch: str,
        *,
        start: CheckpointRecord | None,
        fields: Mapping[str, str],
        plan: Plan | None,
        pending: Sequence[PlannedTask] | None = None,
    ) -> str:
        """Resume a run. See `runner.engine.ports.Runs.resume`."""
        there, old = self._run(run.id), self._run(run.id).plan
        new = plan or old
        reruns = {
            name: branching.rebase(branching.unpack(old, one.rerun_mask), old, new)
            for name, one in there.branches.items()
            if one.rerun_mask
        }
        if start is None:
            self._branch(run.id, branch)
            done = branching.visible(there.lines(branch)).keys()
        else:
            done = branching.visible(there.lines(start.branch), start.seq).keys()
            if pending is None:
                reruns[branch] = frozenset(new.by_key.keys() - done)
        mine = branching.part(new, reruns[branch]) if branch in reruns else new
        ready = frontier(mine, done) if pending is None else pending
        left = sum(task.key not in done for task in mine.tasks) if pending is None else len(pending)
        if left == 0:
            raise Conflict(f"run {run.id} has nothing left to run there")
        refused = self._not_resumed(there, run, branch, start, fields, plan)
        if refused:
            return refused
        if there.status is not RunStatus.running:
            there.branch = branch
        there.fields |= fields
        if start is not None:
            self._leave(there.branches[start.branch], branch, start.seq, start.id)
        begin(there.branches[branch])
        if plan is not None:
            self._replan(there, plan)
        for name, rerun in reruns.items():
            if plan is not None or name == branch:
                there.branches[name].rerun_mask = branching.pack(new, rerun)
        found = there.branches[branch]
        found.left = left
        there.planned += left if start is not None or plan is not None else 0
        parent = start.branch if start is not None else ""
        found.scope = emit(found, "run_resumed", parent_branch=parent)
        for planned in ready:
            self._go_on(found, planned, parent)
        found.aside = found.tasks.keys() - {planned.key for planned in ready}
        for key in found.aside:
            if (task := found.tasks[key]).state is TaskState.asked:
                task.state, task.step, task.question = TaskState.held, "", ""
        found.asked = sum(task.state is TaskState.asked for task in found.tasks.values())
        wait_if_asked(found)
        return "resumed"

    def _not_resumed(
        self,
        there: Run,
        seen: RunRecord,
        branch: str,
        start: CheckpointRecord | None,
        fields: Mapping[str, str],
        plan: Plan | None,
    ) -> str:
        """Why it cannot be resumed as it was ``seen``; "" if it can."""
        if there.fields["plan"] != seen.plan_digest:
            return "changed"
        if start is None and there.branches[branch].live:
            return "changed"
        if start is not None and (there.status is RunStatus.running or there.status != seen.status):
            return "changed"
        if start is not None and branch in there.branches:
            return "taken"
        if (fields or plan) and there.live:
            return "busy"
        return "" if self._memory.has_code(fields.get("bundle", there.fields["bundle"])) else "no bundle"

    def _leave(self, parent: Branch, name: str, seq: int, checkpoint_id: str) -> Branch:
        """A new branch that leaves another one at a position."""
        branch = parent.run.branches[name] = Branch(
            parent.run,
            name,
            status=RunStatus.cancelled,  # until it begins
            seq=seq,
            parent=parent.name,
            parent_seq=seq,
            start=checkpoint_id,
            inputs=parent.inputs,
            created_at=self._memory.now(),
        )
        return branch

    def _replan(self, run: Run, plan: Plan) -> None:
        """What still runs goes by the old plan: what it unlocks, and that it counts at all, may no longer be so."""
        run.plan = plan
        for branch in run.branches.values():
            recall(branch)
            branch.version, branch.shared = "", {}

    def _go_on(self, branch: Branch, planned: PlannedTask, parent: str) -> None:
        """Have a task of a resumed branch done. An attempt that failed is replayed."""
        key, there = planned.key, branch.run.branches[parent] if parent else branch
        before = there.tasks.get(key)
        if parent:
            carry_journal(there, branch, key, branch.parent_seq)
        task = branch.tasks.setdefault(key, Task(branch, key, attempt=1))
        if task.state in (TaskState.running, TaskState.asked):
            return  # it never stopped, or waits for its answer
        failed = before.failed + (before.state is TaskState.failed) if before is not None else 0
        task.failed = failed
        task.failures = task.crashes = task.handed = task.reached = 0
        task.error = task.trace = task.failed_on = ""
        task.ended = None
        task.context, task.timeout, task.pool = planned.context or (), planned.timeout, planned.pool
        send(task)

    # -- forks

    def position(
        self, run_id: str, *, checkpoint: str | None = None, branch: str | None = None, outputs: Iterable[str] = ()
    ) -> Position:
        """A checkpoint, or the head of a branch: the current one if none is named. Raises `NotFound`."""
        run = self._run(run_id)
        if checkpoint:
            found = self.find_checkpoint(run_id, checkpoint)
            name, seq, checkpoint = found.branch, found.seq, found.id
        else:
            name = branch or run.branch
            seq = self._branch(run_id, name)[1].seq
        here = run.branches[name]
        seen = branching.visible(run.lines(name), seq)
        overrides = json.loads(here.inputs)
        return Position(
            run_id=run_id,
            branch=name,
            seq=seq,
            checkpoint=checkpoint or here.head or here.start,
            plan=run.plan,
            digest=run.fields["plan"],
            bundle=run.fields["bundle"],
            queue=run.fields["queue"],
            inputs=json.loads(run.fields.get("inputs", "{}")) | overrides,
            overrides=overrides,
            done=seen if run.plan.grows else {task: one for task, one in seen.items() if task in run.plan.by_key},
            outputs={
                task: committed_record(json.loads(run.branches[seen[task][0]].outputs[task].text))
                for task in outputs
                if task in seen
            },
            shapes=run.fields.get("shapes", ""),
            newest_event=run.events[-1].id if run.events else "0",
            named=bool(checkpoint),
        )

    def fork(
        self,
        where: Position,
        name: str,
        *,
        rerun: frozenset[str],
        kept: Set[str],
        edits: Mapping[str, str],
        overrides: Mapping[str, Any],
        regrown: Regrown | None = None,
    ) -> str:
        """Create the branch ``name`` there, to run ``rerun``, of which ``kept`` begin from what they recorded there.

        ``edits`` are outputs as they are stored, by task. Where the plan grows, ``regrown`` says what is to be done
        instead. Returns "forked", "gone", "changed", "taken" or "no bundle".
        """
        run = self._memory.run(where.run_id)
        if run is None or where.branch not in run.branches:
            return "gone"
        if run.fields["plan"] != where.digest:
            return "changed"
        if name in run.branches:
            return "taken"
        if not self._memory.has_code(run.fields["bundle"]):
            return "no bundle"
        ready = regrown.ready if regrown is not None else branching.starts(where.plan, rerun)
        branch = self._leave(run.branches[where.branch], name, where.seq, where.checkpoint)
        branch.left = len(ready if regrown is not None else rerun)
        run.planned += branch.left
        branch.inputs = json.dumps(overrides, ensure_ascii=False)
        if regrown is None:
            branch.rerun_mask = branching.pack(where.plan, rerun)
        else:
            branch.void, branch.laid = regrown.void, json.dumps(regrown.laid, ensure_ascii=False)
        branch.edited = tuple(edits)
        for task, text in edits.items():
            branch.seq += 1
            stored = f'{{"seq": {branch.seq}, "token": 0, "edited": 1, {text[1:]}'
            branch.outputs[task] = Output(branch.seq, 0, EDITED, stored)
        begin(branch)
        left = {"parent_branch": where.branch, "checkpoint_id": where.checkpoint}
        emit(branch, "checkpoint_fork_completed", **left)
        branch.scope = emit(branch, "crew_kickoff_started")
        checkpoint(branch, "crew_kickoff_started")
        for planned in ready:
            if planned.key in kept:
                carry_journal(run.branches[where.branch], branch, planned.key, where.seq if where.named else None)
            unlock(branch, planned)
        if branch.left == 0:
            transitions.complete(branch)
        return "forked"

    def find_checkpoint(self, run_id: str, checkpoint: str) -> CheckpointRecord:
        """The checkpoint by id, or by an unambiguous beginning of it. Raises `NotFound`."""
        every = (record for branch in self.branches(run_id) for record in self.checkpoints(run_id, branch))
        return branching.the_one(every, checkpoint, f"run {run_id}", run_id)
