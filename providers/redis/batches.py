"""Batches: runs that are submitted together, with one plan and many inputs."""

import json
from collections.abc import Mapping, Sequence

from runner.core.ledger import LedgerRow
from runner.core.plan import Plan
from runner.core.states import RunStatus
from runner.core.stored_output import unpack_output
from runner.providers.records import NewRun, ReadRun, RunRecord, committed_record, tools_by_name
from runner.providers.redis import keys, scripts
from runner.providers.redis.connection import Client
from runner.providers.redis.records import RUN_FIELDS, branch_record, ledger_lines, mapping, run_record
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
        ledgers = self._ledgers(records)
        wanted = {run_id: [f"tokens{field}" for field in ledger] for run_id, ledger in ledgers.items()}
        tokens = self._fields(wanted)
        rows = {run_id: ledger_lines(ledger, tokens[run_id]) for run_id, ledger in ledgers.items()}
        return [(run, rows.get(run.id, []) if run is not None else []) for run in records]

    def _ledgers(self, runs: Sequence[RunRecord | None]) -> dict[str, dict[str, str]]:
        """The fields of the ledgers of these runs, by id, of those that have any: one round trip."""
        called = [run.id for run in runs if run is not None and run.has_steps]
        places = [keys.key("ledger_key", run=keys.run_key(run_id, self.home)) for run_id in called]
        answers = map(mapping, self.client.ask_all([("HGETALL", place) for place in places]))
        return {run_id: ledger for run_id, ledger in zip(called, answers, strict=True) if ledger}

    def _fields(self, wanted: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
        """Those of the wanted fields that each of these runs has, by its id: one round trip."""
        commands = [("HMGET", keys.run_key(run_id, self.home), *names) for run_id, names in wanted.items()]
        answers = zip(wanted.items(), self.client.ask_all(commands), strict=True)
        return {
            run_id: {name: value for name, value in zip(names, values, strict=True) if value is not None}
            for (run_id, names), values in answers
        }

    def _records(self, run_ids: Sequence[str], without: str = "") -> list[RunRecord | None]:
        wanted = [name for name in RUN_FIELDS if name != without]
        found = self._fields(dict.fromkeys(run_ids, wanted)).values()
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

    def read(self, run_ids: Sequence[str]) -> dict[str, ReadRun]:
        """Return what these runs' results are made of, without those gone or with a history: two round trips."""
        commands = list[tuple[str, str]]()
        for run_id in run_ids:
            branch = keys.branch_key(run_id, MAIN, self.home)
            outputs = keys.key("outputs_key", branch_key=branch)
            commands += ("HGETALL", keys.run_key(run_id, self.home)), ("HGETALL", branch), ("HGETALL", outputs)
        answers = map(mapping, self.client.ask_all(commands))
        found: dict[str, ReadRun] = {}
        fields: dict[str, dict[str, str]] = {}
        for run_id, run, line, stored in zip(run_ids, answers, answers, answers, strict=True):
            there = "status" in run and "status" in line
            if there and run.get("branch", MAIN) == MAIN and line.keys().isdisjoint(HISTORY):
                committed = {task: committed_record(unpack_output(text), MAIN) for task, text in stored.items()}
                record, fields[run_id] = run_record(run_id, run), run
                tools = tools_by_name(run.items()) if record.has_tools else {}
                found[run_id] = ReadRun(record, branch_record(MAIN, line), committed, tools=tools)
        for run_id, ledger in self._ledgers([one.run for one in found.values()]).items():
            found[run_id] = found[run_id]._replace(calls=ledger_lines(ledger, fields[run_id]))
        return found

    def statuses(self, run_ids: Sequence[str]) -> list[RunStatus | None]:
        """How these runs stand; None for one that is gone. One round trip."""
        answers = self.client.ask_all([("HGET", keys.run_key(run_id, self.home), "status") for run_id in run_ids])
        return [RunStatus(status) if status else None for status in answers]
