"""Batches: runs that are submitted together, with one plan and many inputs."""

import json
from collections.abc import Mapping, Sequence

from runner.core.ledger import LedgerRow
from runner.core.plan import Plan
from runner.core.states import RunStatus
from runner.core.stored_output import unpack_output
from runner.providers.records import BranchRecord, Committed, NewRun, RunRecord, committed_record
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.records import RUN_FIELDS, branch_record, ledger_line, mapping, run_record
from runner.providers.redis.stream import entries_of

MAIN = "main"  #: the branch that a run begins with
HISTORY = ("parent", "todo", "void", "edits")  #: what a branch has that shows more, or less, than was committed on it


class Batches:
    """The batches in a store."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.home = keys.home_of(client)

    def create(
        self, batch: str, plan: Plan, fields: dict[str, str], runs: Sequence[NewRun], total: int | None = None
    ) -> list[str]:
        """Accept runs of one plan. See `runner.engine.ports.Batches.create`."""
        answers: list[str] = scripts.load("create_runs").at(
            self.client,
            of=fields["bundle"],
            batch=batch,
            total=total or "",
            runs=json.dumps([{"id": one.id, "number": one.number, **one.fields} for one in runs]),
            **scripts.begun_runs(plan, fields, batch),
        )
        return answers

    def stop(self, batch: str, reason: str) -> bool:
        """Refuse new runs of a batch. See `runner.engine.ports.Batches.stop`."""
        return bool(scripts.load("stop_batch").at(self.client, batch=batch, reason=reason))

    def about(self, batch: str) -> tuple[int | None, str]:
        """How many inputs it has, as far as the submitter knew, and why it takes no new runs; "" if it does."""
        total, stopped = self.client.hmget(keys.key("batch_key", home=self.home, batch=batch), "total", "stopped")
        return int(total) if total else None, stopped or ""

    def newest(self, batch: str, limit: int) -> list[tuple[int, RunRecord]]:
        """Its newest runs, each after its number, newest first."""
        key = keys.key("batch_runs_key", home=self.home, batch=batch)
        found = self.client.zrevrange(key, 0, limit - 1, withscores=True)
        records = self._records([run_id for run_id, _ in found])
        return [(int(number), run) for (_, number), run in zip(found, records, strict=True) if run is not None]

    def tally(self, run_ids: Sequence[str]) -> list[tuple[RunRecord | None, list[LedgerRow]]]:
        """These runs, without their inputs, each with its calls of models; None for one that is gone."""
        records = self._records(run_ids, without="inputs")
        rows = self._calls([run.id for run in records if run is not None and run.has_steps])
        return [(run, rows.get(run.id, []) if run is not None else []) for run in records]

    def _calls(self, run_ids: Sequence[str]) -> dict[str, list[LedgerRow]]:
        """The calls of models of these runs."""
        pipe, places = self.client.pipeline(transaction=False), [keys.run_key(one, self.home) for one in run_ids]
        for run in places:
            pipe.hgetall(keys.key("ledger_key", run=run))
        found: list[dict[str, str]] = pipe.execute()
        for run, lines in zip(places, found, strict=True):
            if lines:
                pipe.hmget(run, [f"tokens{field}" for field in lines])
        details = iter(pipe.execute())
        return {
            run_id: [ledger_line(*line, of) for line, of in zip(lines.items(), next(details), strict=True)]
            for run_id, lines in zip(run_ids, found, strict=True)
            if lines
        }

    def _records(self, run_ids: Sequence[str], without: str = "") -> list[RunRecord | None]:
        pipe = self.client.pipeline(transaction=False)
        wanted = [name for name in RUN_FIELDS if name != without]
        for run_id in run_ids:
            pipe.hmget(keys.run_key(run_id, self.home), wanted)
        found = [
            {name: value for name, value in zip(wanted, values, strict=True) if value is not None}
            for values in pipe.execute()
        ]
        return [run_record(id, one) if "status" in one else None for id, one in zip(run_ids, found, strict=True)]

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
