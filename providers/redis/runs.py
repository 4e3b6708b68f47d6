"""The client's side of the store: create, read, follow, cancel and resume a run."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from runner.core.errors import Conflict, NotFound, no_run
from runner.core.ledger import LedgerRow
from runner.core.plan import Plan, PlannedTask, branching, frontier, waits
from runner.core.plan.branching import Done
from runner.core.states import RunStatus
from runner.core.stored_output import unpack_output
from runner.providers.records import (
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
from runner.providers.redis import history, keys, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.history import Ancestor
from runner.providers.redis.protocol import FIRST
from runner.providers.redis.records import (
    RUN_FIELDS,
    branch_record,
    event_record,
    in_flight,
    ledger_lines,
    present,
    run_record,
)
from runner.providers.redis.scripts import specifications
from runner.providers.redis.stream import entries_of

BUNDLE_GRACE_MS = 3_600_000


class Runs:
    """The runs in a store."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.home = keys.home_of(client)

    # -- accepting

    def put_bundle(self, sha: str, data: bytes | None) -> bool:
        """Store a bundle, or with ``data=None`` ask if it is there. Returns whether it is there now."""
        return bool(scripts.load("put_bundle").at(self.client, of=sha, data=data or b"", grace_ms=BUNDLE_GRACE_MS))

    def drop_bundle(self, sha: str, damaged: bytes) -> bool:
        """Forget a bundle's data, if that is what is stored: it can be put again then. Returns whether it was."""
        digest = hashlib.sha1(damaged, usedforsecurity=False).hexdigest()
        return bool(scripts.load("drop_bundle").at(self.client, of=sha, digest=digest))

    def bundle(self, sha: str) -> bytes:
        """Return a bundle's data. Raises `NotFound`."""
        key = keys.key("bundle_key", home=self.home, sha=sha)
        data: bytes | None = self.client.execute_command("HGET", key, "data", NEVER_DECODE=True)
        if data is None:
            raise NotFound(f"the code of this run (bundle {sha[:12]}) is no longer in the store: submit the crew again")
        return data

    def create(self, run_id: str, plan: Plan, fields: dict[str, str]) -> str:
        """Accept a run with its first frontier. Returns "created", "exists" or "no bundle"."""
        own = {name: fields.get(name, "") for name in scripts.OWN_FIELDS}
        shared = scripts.begun_runs(plan, fields)
        return str(scripts.load("create_run").at(self.client, run_id, of=fields["bundle"], **own, **shared))

    # -- reading

    def get(self, run_id: str) -> RunRecord:
        """Return the run. Raises `NotFound`."""
        found = present(self.client.hmget(keys.run_key(run_id, self.home), RUN_FIELDS))
        if "status" not in found:
            raise no_run(run_id)
        return run_record(run_id, found)

    def newest(self, limit: int = 50) -> list[RunRecord]:
        """Return the newest runs, newest first."""
        ids = self.client.zrevrange(keys.key("runs_key", home=self.home), 0, limit - 1)
        pipe = self.client.pipeline(transaction=False)
        for run_id in ids:
            pipe.hmget(keys.run_key(run_id, self.home), RUN_FIELDS)
        every = zip(ids, map(present, pipe.execute()), strict=True)
        return [run_record(run_id, found) for run_id, found in every if "status" in found]

    def protocols(self) -> Counter[int]:
        """How many active runs there are of each protocol."""
        pipe = self.client.pipeline(transaction=False)
        for run_id in self.client.zrange(keys.key("active_key", home=self.home), 0, -1):
            pipe.hget(keys.run_key(run_id, self.home), "protocol")
        return Counter(int(number or FIRST) for number in pipe.execute())

    def status(self, run_id: str, branch: str | None = None) -> RunStatus:
        """Where the run stands, which is where its current branch does; or one branch. Raises `NotFound`."""
        if branch is not None:
            return self.branch(run_id, branch).status
        return self.standing(run_id)[0]

    def standing(self, run_id: str) -> tuple[RunStatus, str]:
        """How the run stands, and which branch is its current branch. Raises `NotFound`."""
        status, branch = self.client.hmget(keys.run_key(run_id, self.home), "status", "branch")
        if status is None:
            self.get(run_id)
        return RunStatus(status), str(branch)

    def progress(
        self, run_id: str, branch: str | None = None, *, after: str = "", block_ms: int = 0
    ) -> tuple[RunStatus, int, str]:
        """Return how a branch stands, how many of its tasks are left, and an event's stream id. Raises `NotFound`.

        The event was the run's newest just before. ``branch``: None for the current one. One round trip where that is
        main.
        """
        run, name = keys.run_key(run_id, self.home), branch or "main"
        while True:
            pipe = self.client.pipeline(transaction=False)
            if after:
                pipe.xread({keys.key("events_key", run=run): after}, block=block_ms, count=1)
            pipe.xrevrange(keys.key("events_key", run=run), count=1)
            pipe.hmget(run, "status", "branch")
            pipe.hmget(keys.branch_key(run_id, name, self.home), "status", "left")
            newest, (of_run, current), (of_branch, left) = pipe.execute()[-3:]
            status = of_run if branch is None else of_branch
            if status is None:
                status = (
                    RunStatus.running if history.fails_soon(self.client, run_id, name) else self.status(run_id, branch)
                )
            if branch is not None or current == name:
                return RunStatus(status), int(left or 0), str(newest[0][0]) if newest else "0"
            name, after = current, ""

    def field(self, run_id: str, name: str) -> str:
        """One field of a run; "" if it is not there."""
        return self.client.hget(keys.run_key(run_id, self.home), name) or ""

    def code(self, run_id: str) -> tuple[str, ...] | None:
        """Its bundle, the module, the crew's name there and its adapter; None if there is no such run."""
        found = self.client.hmget(keys.run_key(run_id, self.home), ["bundle", "module", "attr", "adapter"])
        return None if None in found else tuple(map(str, found))

    def plan(self, run_id: str, digest: str = "") -> Plan:
        """The run's plan; with its ``digest``, one that was read before is not read again. Raises `NotFound`."""
        return history.read_plan(self.client, run_id, digest)

    def branch_plan(self, run_id: str, branch: str) -> Plan:
        """What a branch does of the run's plan. Raises `NotFound`."""
        return branching.branch_plan(
            self.plan(run_id), self.client.hget(keys.branch_key(run_id, branch, self.home), "todo") or ""
        )

    def existing(self, run_ids: Sequence[str]) -> set[str]:
        """Return those of these runs that the store has."""
        pipe = self.client.pipeline(transaction=False)
        for run_id in run_ids:
            pipe.exists(keys.run_key(run_id, self.home))
        return {run_id for run_id, there in zip(run_ids, pipe.execute(), strict=True) if there}

    def parent(self, run_id: str, branch: str) -> str:
        """The branch that this one left; "" for none."""
        return self.client.hget(keys.branch_key(run_id, branch, self.home), "parent") or ""

    def branches(self, run_id: str) -> list[str]:
        """Return the run's branches, main first."""
        found = self.client.smembers(keys.key("branches_key", run=keys.run_key(run_id, self.home)))
        return sorted(found, key=lambda name: (name != "main", name))

    def branch(self, run_id: str, name: str) -> BranchRecord:
        """Return one branch; of a run that is active, one that is gone when it has failed. Raises `NotFound`."""
        found = history.fields_of(self.client, run_id, name)
        if "status" not in found:
            self.get(run_id)
            raise NotFound(
                f"run {run_id} has no branch {name!r}; there are: {', '.join(self.branches(run_id)) or 'none'}"
            )
        return branch_record(name, found)

    def branch_records(self, run_id: str) -> list[BranchRecord]:
        """Return the run's branches as they stand, main first."""
        names = self.branches(run_id)
        pipe = self.client.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(keys.branch_key(run_id, name, self.home))
        return [branch_record(name, found) for name, found in zip(names, pipe.execute(), strict=True) if found]

    def committed(self, run_id: str, branch: str, upto: int | None = None) -> dict[str, Committed]:
        """The outputs of a branch by task: its own, and what it sees of its parent's from before it left it."""
        ancestry = history.with_outputs(self.client, run_id, branch)
        plan = self._plan_of(run_id, ancestry)
        stored = {one.name: {task: unpack_output(text) for task, text in one.answer.items()} for one in ancestry}
        lines = [one.line(plan, (Done(t, o["seq"]) for t, o in stored[one.name].items())) for one in ancestry]
        seen = branching.visible(lines, float("inf") if upto is None else upto)
        return {task: committed_record(stored[name][task], name) for task, (name, _) in seen.items()}

    def _plan_of(self, run_id: str, ancestry: Sequence[Ancestor]) -> Plan:
        """The plan, where a branch does only a part of it; else there is nothing to look up there."""
        return self.plan(run_id) if any("todo" in one.fields for one in ancestry) else Plan("", ())

    def outputs_of(self, run_id: str, branch: str, tasks: Sequence[str]) -> dict[str, Committed]:
        """The outputs of tasks that are surely committed there."""
        return {task: committed_record(one) for task, one in self.stored_outputs(run_id, branch, tasks).items()}

    def stored_outputs(self, run_id: str, branch: str, tasks: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Their records, with all that is stored beside them."""
        return history.stored_outputs(self.client, run_id, branch, tasks)

    def files_left(self, run_id: str, branch: str) -> list[dict[str, Any]]:
        """Return the stored files that a branch's committed tasks left, oldest first: a round trip for each branch."""
        ancestry = history.commit_log(self.client, run_id, branch)
        plan = self._plan_of(run_id, ancestry)
        seen = branching.visible([one.line(plan, history.in_order(one)) for one in ancestry])
        left = [task for task, (_, done) in seen.items() if done.used.files]
        return files_in(self.stored_outputs(run_id, branch, left).values())

    def in_flight(self, run_id: str, branch: str) -> list[InFlight]:
        """Return the tasks of a branch that are neither waiting nor committed."""
        fields = ("state", "attempt", "worker", "by", "error", "trace", "began", "ended")
        return [in_flight(task, *found) for task, found in self._open_tasks(run_id, branch, *fields)]

    def _open_tasks(self, run_id: str, branch: str, *fields: str) -> Iterable[tuple[str, list[str | None]]]:
        """The tasks in flight on a branch, each with these fields of its hash."""
        key = keys.branch_key(run_id, branch, self.home)
        tasks = sorted(self.client.smembers(keys.key("open_key", branch_key=key)))
        pipe = self.client.pipeline(transaction=False)
        for task in tasks:
            pipe.hmget(keys.key("task_key", branch_key=key, name=task), fields)
        return zip(tasks, pipe.execute(), strict=True)

    def checkpoints(self, run_id: str, branch: str) -> list[CheckpointRecord]:
        """Return the checkpoints that a branch keeps, oldest first."""
        key = keys.branch_key(run_id, branch, self.home)
        ids = self.client.zrange(keys.key("checkpoints_key", branch_key=key), 0, -1)
        lineage = self.client.hgetall(keys.key("lineage_key", branch_key=key))
        records = []
        for checkpoint in ids:
            seq, at, parent, trigger, task = lineage[checkpoint].split("|", 4)
            trigger = trigger or "task_completed"
            records.append(CheckpointRecord(checkpoint, branch, int(seq), int(at), parent, trigger, task))
        return records

    def count_checkpoints(self, run_id: str, branch: str) -> int:
        """Return how many checkpoints a branch keeps."""
        return int(
            self.client.zcard(keys.key("checkpoints_key", branch_key=keys.branch_key(run_id, branch, self.home)))
        )

    def find_checkpoint(self, run_id: str, checkpoint: str) -> CheckpointRecord:
        """The checkpoint by id, or by an unambiguous beginning of it. Raises `NotFound`."""
        every = (record for branch in self.branches(run_id) for record in self.checkpoints(run_id, branch))
        return branching.the_one(every, checkpoint, f"run {run_id}", run_id)

    def events(self, run_id: str, after: str = "0", block_ms: int | None = None) -> Iterator[Event]:
        """The events after a stream id; with ``block_ms``, waits that long for the first."""
        key = keys.key("events_key", run=keys.run_key(run_id, self.home))
        if block_ms is None:
            entries = self.client.xrange(key, min="-" if after == "0" else f"({after}")
        else:
            answer = self.client.xread({key: after}, block=block_ms, count=500)
            entries = entries_of(answer)
        for stream_id, fields in entries:
            yield event_record(run_id, stream_id, dict(fields))

    def last_event(self, run_id: str) -> str:
        """The stream id of the newest event; "0" if there is none."""
        newest = self.client.xrevrange(keys.key("events_key", run=keys.run_key(run_id, self.home)), count=1)
        return str(newest[0][0]) if newest else "0"

    def last_commit(self, run_id: str, branch: str) -> int:
        """The sequence of the branch's newest commit; where it left its parent if it has none."""
        key = keys.branch_key(run_id, branch, self.home)
        pipe = self.client.pipeline(transaction=False)
        pipe.lindex(keys.key("commit_log_key", branch_key=key), -1)
        pipe.hget(key, "parent_seq")
        newest, parent_seq = pipe.execute()
        return int(json.loads(newest)[0]) if newest else int(parent_seq or 0)

    def ledger(self, run_id: str) -> list[LedgerRow]:
        """The run's calls of models, by branch, task, agent and model."""
        run = keys.run_key(run_id, self.home)
        found: dict[str, str] = self.client.hgetall(keys.key("ledger_key", run=run))
        names = [f"tokens{field}" for field in found]
        return ledger_lines(found, dict(zip(names, self.client.hmget(run, names), strict=True)) if found else {})

    def tools(self, run_id: str) -> dict[str, dict[str, int]]:
        """How often each tool was used (paid, replayed, in_doubt), by its name."""
        return tools_by_name(self.client.hgetall(keys.run_key(run_id, self.home)).items())

    def questions(self, run_id: str, branch: str) -> list[Question]:
        """Return the unanswered questions of a branch's tasks."""
        found = self._open_tasks(run_id, branch, "state", "step", "question")
        return [
            Question(task, step or "", json.loads(question or ""))
            for task, (state, step, question) in found
            if state == "asked"
        ]

    # -- steering

    def answer(self, run_id: str, branch: str, question: Question, text: str) -> str:
        """Answer a question. See `runner.engine.ports.Runs.answer`."""
        place = (run_id, branch, question.task)
        return str(scripts.load("answer").at(self.client, *place, step=question.step, text=text))

    def cancel(self, run_id: str, reason: str, branch: str | None = None) -> str:
        """Cancel a run, or one branch. See `runner.engine.ports.Runs.cancel`."""
        return str(scripts.load("cancel").at(self.client, run_id, branch=branch or "", reason=reason))

    def prune(self, run_id: str, branch: str, keep: int) -> int:
        """Keep the newest ``keep`` checkpoints of a branch, exactly. Returns how many went. Raises `NotFound`."""
        self.branch(run_id, branch)
        return int(scripts.load("prune").at(self.client, run_id, branch, keep=keep))

    def resume(
        self,
        run: RunRecord,
        branch: str,
        *,
        start: CheckpointRecord | None,
        fields: dict[str, str],
        plan: Plan | None,
        pending: Sequence[PlannedTask] | None = None,
    ) -> str:
        """Resume a run. See `runner.engine.ports.Runs.resume`."""
        old = self.plan(run.id)
        new = plan or old
        lines = self.branches(run.id)
        key = keys.branch_key(run.id, branch, self.home)
        pipe = self.client.pipeline(transaction=False)
        for name in lines:
            pipe.hget(keys.branch_key(run.id, name, self.home), "todo")
        pipe.hmget(key, "seq", "status")
        *packed, (seq, status) = pipe.execute()
        reruns = {
            name: branching.rebase(branching.unpack(old, text), old, new)
            for name, text in zip(lines, packed, strict=True)
            if text
        }
        lost = frozenset[str]()
        if start is None:
            done = self.committed(run.id, branch).keys()
            if pending is None and branch in reruns:  # what it left to its parent, and is gone there, it does itself
                lost = frozenset(new.by_key.keys() - done - reruns[branch])
                reruns[branch] |= lost
        else:
            done = self.committed(run.id, start.branch, start.seq).keys()
            if pending is None:
                reruns[branch] = frozenset(new.by_key.keys() - done)
        mine = branching.part(new, reruns[branch]) if branch in reruns else new
        left = sum(task.key not in done for task in mine.tasks) if pending is None else len(pending)
        ready = frontier(mine, done) if pending is None else pending
        unmet = waits(mine, done) if pending is None else {}
        if left == 0:
            raise Conflict(f"run {run.id} has nothing left to run there")
        if plan is None:  # what is set does not change
            reruns = {branch: reruns[branch]} if lost or (start and pending is None) else {}
        return str(
            scripts.load("resume").at(
                self.client,
                *(run.id, branch),
                of=fields.get("bundle", run.bundle),
                fields=json.dumps(fields),
                plan=plan.to_json() if plan else "",
                parent=start.branch if start else "",
                parent_seq=start.seq if start else 0,
                start=start.id if start else "",
                expected_status=run.status.value if start else status,
                expected_seq=seq or 0,
                expected_plan=run.plan_digest,
                expected_branches=len(lines) if plan else "",
                rerun_masks=json.dumps({name: branching.pack(new, rerun) for name, rerun in reruns.items()}),
                ready=specifications(ready),
                waits=json.dumps([{"task": task, "met": met} for task, met in unmet.items()]),
                tasks_left=left,
            )
        )
