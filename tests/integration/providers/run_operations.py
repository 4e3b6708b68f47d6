"""What people do with runs, done to Redis and to memory alike."""

from collections.abc import Set
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from runner.client import forking
from runner.core.errors import Conflict
from runner.core.output import dump
from runner.core.plan import Plan
from runner.core.plan.branching import visible
from runner.providers.memory.state import Run
from runner.providers.records import CheckpointRecord
from runner.providers.redis.envelope import DIRECT

from .driver import KEEP
from .sides import QUEUES, Sides


class RunOperations(Sides):
    """Runs and their branches: submitted, cancelled, resumed, forked, answered. Every method ends with a `check`."""

    def submit(self, run_id: str, plan: Plan, options: dict[str, Any]) -> None:
        """Create a run; a second time, which changes nothing."""
        queue = QUEUES[options["queue"]]
        fields = {
            "crew": plan.crew,
            "adapter": "native",
            "bundle": options["bundle"],
            "module": "crew",
            "attr": "crew",
            "plan": plan.digest,
            "inputs": '{"topic": "ü"}',
            "queue": queue,
            "keep": str(KEEP),
            "checkpoint_on": f",{','.join(sorted(options['triggers']))}," if options["triggers"] else "",
            "max_checkpoints": str(options["most"]),
            "envelope": "" if options["relayed"] else DIRECT,
        }
        assert self.store.create(run_id, plan, fields) == self.memory.runs.create(run_id, plan, fields) == "created"
        self.check()
        assert self.store.create(run_id, plan, fields) == self.memory.runs.create(run_id, plan, fields) == "exists"
        self.check(unchanged=True)

    def cancel(self, run: Run, only: str | None = None) -> None:
        was = self.memory.runs.cancel(run.id, "a person said so", only)
        assert self.store.cancel(run.id, "a person said so", only) == was
        self.check(unchanged=was not in ("running", "waiting"))

    def resume(
        self,
        run: Run,
        name: str,
        start: CheckpointRecord | None = None,
        bundle: str | None = None,
        plan: Plan | None = None,
    ) -> None:
        """Let a run go on. A second one, who saw the run as it was, comes too late."""
        bundle = bundle if run.fields["bundle"] else None
        fields = ({"bundle": bundle} if bundle else {}) | ({"plan": plan.digest} if plan else {})
        seen = self.store.get(run.id), self.memory.runs.get(run.id)
        assert seen[0] == replace(seen[1], in_doubt=seen[1].in_doubt + self.too_late[run.id])
        how: dict[str, Any] = {"start": start, "fields": fields, "plan": plan}
        done = visible(run.lines(start.branch), start.seq) if start else visible(run.lines(name))
        if len(done) == len((plan or run.plan).tasks):
            for store, record in ((self.store, seen[0]), (self.memory.runs, seen[1])):
                with pytest.raises(Conflict):
                    store.resume(record, name, **how)
            self.check(unchanged=True)
            return
        due = self.memory.runs.resume(seen[1], name, **how)
        assert self.store.resume(seen[0], name, **how) == due
        self.check(unchanged=due in ("busy", "changed"))
        if due == "resumed":
            assert self.memory.runs.resume(seen[1], name, **how) == "changed"
            assert self.store.resume(seen[0], name, **how) == "changed"
            self.check(unchanged=True)

    def fork(
        self, run: Run, at: CheckpointRecord | str, name: str, edits: dict[str, str], inputs: dict[str, Any]
    ) -> None:
        """A new branch, from a checkpoint or the newest position of a branch. Then its name is taken."""
        source, checkpoint = (at, None) if isinstance(at, str) else (None, at.id)
        fork = partial(
            forking.fork,
            self.redis,
            run.id,
            checkpoint=checkpoint,
            source=source,
            branch=name,
            inputs=inputs,
            edits=edits,
        )
        where = self.memory.runs.position(run.id, checkpoint=checkpoint, branch=source, outputs=edits)
        changed = {key: value for key, value in inputs.items() if where.inputs.get(key) != value}
        again = self._touched(run, where.branch, where.seq, edits.keys(), changed.keys())
        rerun = frozenset(run.plan.by_key.keys() - where.done.keys() | again)
        ready = {key for key in rerun if rerun.isdisjoint(run.plan.earlier(key))}
        kept = {key for key in ready - again if not changed and edits.keys().isdisjoint(run.plan.earlier(key))}
        texts = {key: dump(text, None) for key, text in edits.items()}
        create = partial(
            self.memory.runs.fork,
            *(where, name),
            rerun=rerun,
            kept=kept,
            edits=texts,
            overrides=where.overrides | changed,
        )
        assert create() == "forked"
        assert fork()[0] == name
        self.check()
        assert create() == "taken"
        with pytest.raises(Conflict):
            fork()
        self.check(unchanged=True)

    @staticmethod
    def _touched(run: Run, name: str, upto: float, edits: Set[str], inputs: Set[str]) -> set[str]:
        """Of what is done there, what used one of these, or what used what used one of these."""
        seen = visible(run.lines(name), upto)
        changed = set(edits)
        while True:
            more = set()
            for key in seen.keys() & run.plan.by_key.keys() - changed:
                used = seen[key][1].used
                if used.edited:
                    continue
                read = set(run.plan.by_key[key].context or ()) | used.tasks
                if "*" in read:
                    read |= set(run.plan.earlier(key))
                if read & changed or used.inputs & inputs or ("*" in used.inputs and inputs):
                    more.add(key)
            if not more:
                return changed - edits
            changed |= more

    def answer(self, run: Run, branch: str, which: int, text: str) -> None:
        """A person answers; a second time, which is too late."""
        questions = self.memory.runs.questions(run.id, branch)
        assert self.store.questions(run.id, branch) == questions
        question = questions[which]
        due = self.memory.runs.answer(run.id, branch, question, text)
        assert self.store.answer(run.id, branch, question, text) == due
        self.check(unchanged=due != "answered")
        if due == "answered":
            assert self.memory.runs.answer(run.id, branch, question, '"too late"') == "not asked"
            assert self.store.answer(run.id, branch, question, '"too late"') == "not asked"
            self.check(unchanged=True)
