"""Batches: runs that are submitted together, with one plan and many inputs."""

import json
from collections.abc import Mapping, Sequence

from runner.core.output import unpack_output
from runner.core.plan import Plan
from runner.core.states import RunStatus
from runner.providers.records import BranchRecord, Committed, NewRun, RunRecord, committed_record
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.records import branch_record, mapping, run_record
from runner.providers.redis.stream import entries_of

MAIN = "main"  #: the branch that a run begins with
HISTORY = ("parent", "todo", "void", "edits")  #: what a branch has that shows more, or less, than was committed on it


class Batches:
    """The batches in a store."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.home = keys.home_of(client)

    def create(self, batch: str, plan: Plan, fields: dict[str, str], runs: Sequence[NewRun]) -> list[str]:
        """Accept runs of one plan. See `runner.engine.ports.Batches.create`."""
        answers: list[str] = scripts.load("create_runs").at(
            self.client,
            of=fields["bundle"],
            batch=batch,
            runs=json.dumps([{"id": one.id, "number": one.number, **one.fields} for one in runs]),
            **scripts.begun_runs(plan, fields, batch),
        )
        return answers

    def runs(self, batch: str, after: int = 0, limit: int = 500) -> list[tuple[int, str]]:
        """Its runs by their numbers, from the one that follows ``after``."""
        key = keys.key("batch_runs_key", home=self.home, batch=batch)
        found = self.client.zrangebyscore(key, f"({after}", "+inf", start=0, num=limit, withscores=True)
        return [(int(number), str(run_id)) for run_id, number in found]

    def last_ended(self, batch: str) -> str:
        """Where the list of those that are over ends now; "0" if there is none."""
        newest = self.client.xrevrange(keys.key("batch_ended_key", home=self.home, batch=batch), count=1)
        return str(newest[0][0]) if newest else "0"

    def ended(self, batch: str, after: str, block_ms: int) -> tuple[list[str], str]:
        """The runs that were over since ``after``, and where the list ends now; waits that long for the first."""
        key = keys.key("batch_ended_key", home=self.home, batch=batch)
        entries = entries_of(self.client.xread({key: after}, block=block_ms, count=500))
        return [dict(fields)["run"] for _, fields in entries], entries[-1][0] if entries else after

    def read(self, run_ids: Sequence[str]) -> dict[str, tuple[RunRecord, BranchRecord, Mapping[str, Committed]]]:
        """The records of these runs and of their branches, with what is committed there: one round trip for all.

        Those whose current branch has a history are left out.
        """
        commands = list[tuple[str, str]]()
        for run_id in run_ids:
            branch = keys.branch_key(run_id, MAIN, self.home)
            outputs = keys.key("outputs_key", branch_key=branch)
            commands += ("HGETALL", keys.run_key(run_id, self.home)), ("HGETALL", branch), ("HGETALL", outputs)
        answers = map(mapping, self.client.ask_all(commands))
        found: dict[str, tuple[RunRecord, BranchRecord, Mapping[str, Committed]]] = {}
        for run_id, run, line, stored in zip(run_ids, answers, answers, answers, strict=True):
            if "status" in run and run.get("branch", MAIN) == MAIN and line.keys().isdisjoint(HISTORY):
                committed = {task: committed_record(unpack_output(text), MAIN) for task, text in stored.items()}
                found[run_id] = run_record(run_id, run), branch_record(MAIN, line), committed
        return found

    def statuses(self, run_ids: Sequence[str]) -> list[RunStatus | None]:
        """How these runs stand; None for one that is gone. One round trip."""
        pipe = self.client.pipeline(transaction=False)
        for run_id in run_ids:
            pipe.hget(keys.run_key(run_id, self.home), "status")
        return [RunStatus(status) if status else None for status in pipe.execute()]
