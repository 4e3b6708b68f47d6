"""Reads a branch together with its ancestors."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runner.core import waiting
from runner.core.backoff import Backoff
from runner.core.errors import Conflict, no_run
from runner.core.plan import Plan
from runner.core.plan.branching import BranchHistory, Done, unpack
from runner.core.plan.dependencies import EDITED, NOTHING, ReadSet
from runner.core.stored_output import unpack_output
from runner.providers.redis import keys
from runner.providers.redis.connection import Client

FIELDS = ("parent", "parent_seq", "todo", "void", "edits", "seq", "head", "from", "inputs", "laid")


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A branch in a history: its fields, and what was asked of it."""

    name: str
    fields: dict[str, str]
    answer: Any

    def line(self, plan: Plan, done: Iterable[Done]) -> BranchHistory:
        """Return the branch as the pure decisions take it."""
        rerun_mask, void = self.fields.get("todo"), self.fields.get("void")
        return BranchHistory(
            self.name,
            self.fields.get("parent", ""),
            int(self.fields.get("parent_seq", 0)),
            unpack(plan, rerun_mask) if rerun_mask else frozenset(json.loads(void)) if void else None,
            list(done),
        )


def read(client: Client, run_id: str, branch: str, ask: Callable[[Any, str], Any]) -> list[Ancestor]:
    """The branch, then its parent and so on: one round trip each, in which ``ask`` adds a question, or several."""
    found: list[Ancestor] = []
    name: str | None = branch
    while name:
        key = keys.branch_key(run_id, name, keys.home_of(client))
        pipe = client.pipeline(transaction=True)
        pipe.hmget(key, FIELDS)
        ask(pipe, key)
        values, *answers = pipe.execute()
        fields = {field: value for field, value in zip(FIELDS, values, strict=True) if value is not None}
        found.append(Ancestor(name, fields, answers[0] if len(answers) == 1 else answers))
        name = fields.get("parent")
    return found


LOOKS = 25  #: for a branch that is gone, in 10 s: the leading supervisor, if there is one, has failed it by then


def fields_of(client: Client, run_id: str, branch: str) -> dict[str, str]:
    """The fields of a branch; of one that is gone from an active run those with which it fails. Empty for no branch."""
    pauses = Backoff(0.05, 0.5)
    for _ in range(LOOKS):
        found: dict[str, str] = client.hgetall(keys.branch_key(run_id, branch, keys.home_of(client)))
        if "status" in found or not fails_soon(client, run_id, branch):
            return found
        waiting.sleep(pauses.pause())
    return {}


def fails_soon(client: Client, run_id: str, branch: str) -> bool:
    """Whether a branch that is gone, deleted or evicted, is one that the leading supervisor looks for."""
    home = keys.home_of(client)
    pipe = client.pipeline(transaction=False)
    pipe.sismember(keys.key("branches_key", run=keys.run_key(run_id, home)), branch)
    pipe.zscore(keys.key("active_key", home=home), run_id)
    listed, active = pipe.execute()
    return bool(listed) and active is not None


PLANS = 16  #: that are kept


@lru_cache(maxsize=PLANS)
def _parsed(text: str) -> Plan:
    return Plan.from_json(text)


def plan_from(text: str | None, run_id: str, bundle: str | None) -> Plan:
    """A stored plan, parsed once. Raises `NotFound`, or `Conflict` if it went with its ``bundle``."""
    if text is None and bundle:
        raise Conflict(f"the code of run {run_id} is no longer in the store: submit the crew again")
    if text is None and bundle is not None:
        raise Conflict(f"the plan of run {run_id} is no longer in the store: submit the crew again")
    if text is None:
        raise no_run(run_id)
    return _parsed(text)


_read: dict[str, Plan] = {}  #: the plans that were read last, by digest


def read_plan(client: Client, run_id: str, digest: str = "") -> Plan:
    """Return the run's plan: its bundle's, else its own, also if that is of an earlier version. Raises `NotFound`.

    With its ``digest``, a plan that was read before is not read again.
    """
    if digest in _read:
        return _read[digest]
    home = keys.home_of(client)
    run = keys.run_key(run_id, home)
    pipe = client.pipeline(transaction=False)
    pipe.get(keys.key("plan_key", run=run))
    pipe.hmget(run, "bundle", "plan")
    text, (sha, stored) = pipe.execute()
    if text is None and sha:
        text = client.hget(keys.key("bundle_key", home=home, sha=sha), f"plan:{stored}")
    plan = plan_from(text, run_id, sha)
    if digest and digest == stored:
        if len(_read) >= PLANS:
            _read.clear()
        _read[digest] = plan
    return plan


def commit_log(client: Client, run_id: str, branch: str) -> list[Ancestor]:
    """The history of a branch with the order of commits on each."""
    return read(
        client, run_id, branch, lambda pipe, key: pipe.lrange(keys.key("commit_log_key", branch_key=key), 0, -1)
    )


def in_order(one: Ancestor, upto: float = float("inf")) -> list[Done]:
    """What was edited on a branch, then the order of its commits up to a sequence, decoded."""
    first = int(one.fields.get("parent_seq", 0)) + 1
    edits = [Done(task, seq, EDITED) for seq, task in enumerate(json.loads(one.fields.get("edits", "[]")), first)]
    commits = json.loads(f"[{','.join(one.answer)}]")
    return edits + [
        Done(entry[1], entry[0], ReadSet.from_json(entry[2:]) if len(entry) > 2 else NOTHING)
        for entry in commits
        if entry[0] <= upto
    ]


def with_outputs(client: Client, run_id: str, branch: str) -> list[Ancestor]:
    """The history of a branch with the outputs committed on each."""
    return read(client, run_id, branch, lambda pipe, key: pipe.hgetall(keys.key("outputs_key", branch_key=key)))


def with_commits(client: Client, run_id: str, branch: str) -> list[Ancestor]:
    """The history of a branch with the outputs committed on each, and their order, as it is stored."""

    def ask(pipe: Any, key: str) -> None:
        pipe.hgetall(keys.key("outputs_key", branch_key=key))
        pipe.lrange(keys.key("commit_log_key", branch_key=key), 0, -1)

    return read(client, run_id, branch, ask)


def stored_outputs(client: Client, run_id: str, branch: str, tasks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The records of tasks that are surely committed there: one round trip where the branch did them itself."""
    found: dict[str, dict[str, Any]] = {}
    name: str | None = branch
    upto = float("inf")
    while name and (missing := [task for task in tasks if task not in found]):
        key = keys.branch_key(run_id, name, keys.home_of(client))
        pipe = client.pipeline(transaction=False)
        pipe.hmget(keys.key("outputs_key", branch_key=key), missing)
        pipe.hmget(key, "parent", "parent_seq")
        texts, (name, parent_seq) = pipe.execute()
        for task, text in zip(missing, texts, strict=True):
            if text is not None and (stored := unpack_output(text))["seq"] <= upto:
                found[task] = stored
        upto = min(upto, int(parent_seq or 0))
    return {task: found[task] for task in tasks if task in found}
