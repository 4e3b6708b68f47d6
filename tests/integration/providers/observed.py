"""What stands in Redis, read in one look and told apart by the key templates: no code of the provider reads it."""

import json
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from runner.core.plan import Plan
from runner.core.plan.branching import unpack
from runner.core.stored_output import unpack_output
from runner.providers.redis.keys import patterns

TEST_KEY = "runner:{p0}:test:now"

_DUMP = """
local all = {}
for i, key in ipairs(redis.call("KEYS", "*")) do
  local kind, value = redis.call("TYPE", key).ok, nil
  if kind == "string" then value = redis.call("GET", key)
  elseif kind == "hash" then value = redis.call("HGETALL", key)
  elseif kind == "set" then value = redis.call("SMEMBERS", key)
  elseif kind == "zset" then value = redis.call("ZRANGE", key, 0, -1, "WITHSCORES")
  elseif kind == "list" then value = redis.call("LRANGE", key, 0, -1)
  else value = redis.call("XREVRANGE", key, "+", "-", "COUNT", 16) end
  all[i] = {key, kind, value, redis.call("PTTL", key)}
end
return cjson.encode(all)
"""


@dataclass(frozen=True)
class Entry:
    """One key: its template's name ("queue" for a broker's list), its parts, its value, its time to live (-1: none)."""

    name: str
    parts: dict[str, str]
    value: Any
    ttl: int


@dataclass
class ObservedBranch:
    """One branch, as its keys say."""

    fields: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    order: list[list[Any]] = field(default_factory=list)
    waits: dict[str, int] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    checkpoints: list[tuple[str, int]] = field(default_factory=list)
    lineage: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tasks: dict[str, dict[str, str]] = field(default_factory=dict)
    journals: dict[str, dict[str, str]] = field(default_factory=dict)
    steps: dict[str, dict[str, int]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)


@dataclass
class ObservedRun:
    """One run, as its keys say."""

    fields: dict[str, str] = field(default_factory=dict)
    plan: Plan | None = None
    branches: dict[str, ObservedBranch] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    events: list[Any] = field(default_factory=list)
    ledger: dict[tuple[str, ...], list[int]] = field(default_factory=dict)
    lifetimes: dict[str, int] = field(default_factory=dict)

    def rerun(self, name: str) -> frozenset[str]:
        """What a branch does itself."""
        assert self.plan is not None
        packed = self.branches[name].fields.get("todo")
        return unpack(self.plan, packed) if packed else frozenset(self.plan.by_key)

    def committed(self, name: str, upto: float = float("inf")) -> dict[str, int]:
        """The sequence of each task that is committed on a branch, or was on its parent and is not done again."""
        branch = self.branches[name]
        found = {}
        if "parent" in branch.fields:
            found = self.committed(branch.fields["parent"], min(upto, int(branch.fields["parent_seq"])))
            found = {task: seq for task, seq in found.items() if task not in self.rerun(name)}
        return found | {task: o["seq"] for task, o in branch.outputs.items() if o["seq"] <= upto}

    def states(self) -> dict[tuple[str, str], str]:
        """The state of each task on each branch, as `runner.core.states` names them."""
        assert self.plan is not None
        found = {}
        for name, branch in self.branches.items():
            done = self.committed(name)
            for task in self.plan.tasks:
                standing = branch.tasks.get(task.key, {}).get("state", "waiting")
                found[name, task.key] = "committed" if task.key in done else standing
        return found


@dataclass
class World:
    """Everything there is."""

    entries: dict[str, Entry]
    runs: dict[str, ObservedRun]

    def single(self, name: str, default: Any) -> Any:
        """The value of a key of which there is one."""
        return next((entry.value for entry in self.entries.values() if entry.name == name), default)

    def by(self, name: str, part: str) -> dict[str, Any]:
        """The values of all keys of a template, by one part."""
        return {entry.parts[part]: entry.value for entry in self.entries.values() if entry.name == name}

    def values(self, *, but_events: bool = False) -> dict[str, Any]:
        """Every value, to compare; without the events and their counters if wanted."""
        found = {key: entry.value for key, entry in self.entries.items() if key != TEST_KEY}
        if but_events:
            found = {key: value for key, value in found.items() if not key.endswith(":events")}
            for key, entry in self.entries.items():
                if entry.name == "run_key":
                    found[key] = {name: value for name, value in entry.value.items() if name != "events"}
        return found


def look(redis: Redis, queues: set[str]) -> World:
    """Read everything. A key that no template describes fails the test."""
    found = json.loads(redis.execute_command("EVAL", _DUMP, 0))
    entries = {key: _entry(key, kind, value, ttl, queues) for key, kind, value, ttl in found or []}
    runs: dict[str, ObservedRun] = {}
    for key, entry in entries.items():
        if "run_id" in entry.parts:
            _file(runs.setdefault(entry.parts["run_id"], ObservedRun()), key, entry)
    bundles = {entry.parts["sha"]: entry.value for entry in entries.values() if entry.name == "bundle_key"}
    for run in runs.values():
        if run.plan is None and "plan" in run.fields:
            text = bundles.get(run.fields["bundle"], {}).get(f"plan:{run.fields['plan']}")
            run.plan = Plan.from_json(text) if text else None
    return World(entries, runs)


def _entry(key: str, kind: str, value: Any, ttl: int, queues: set[str]) -> Entry:
    if kind == "hash":
        value = dict(zip(value[::2], value[1::2], strict=True))
    elif kind == "zset":
        value = dict(zip(value[::2], map(float, value[1::2]), strict=True))
    elif kind == "set":
        value = set(value)
    if key in queues:
        return Entry("queue", {}, list(value), ttl)
    if key == TEST_KEY:
        return Entry("test", {}, value, ttl)
    name, parts = describe(key)
    return Entry(name, parts, value, ttl)


def _file(run: ObservedRun, key: str, entry: Entry) -> None:
    run.lifetimes[key] = entry.ttl
    branch = run.branches.setdefault(entry.parts["branch"], ObservedBranch()) if "branch" in entry.parts else None
    match entry.name, branch:
        case "run_key", None:
            run.fields = entry.value
        case "plan_key", None:
            run.plan = Plan.from_json(entry.value)
        case "branches_key", None:
            run.listed = entry.value
        case "events_key", None:
            run.events = entry.value
        case "ledger_key", None:
            run.ledger = {tuple(json.loads(key)): json.loads(line) for key, line in entry.value.items()}
        case "shared_key", ObservedBranch():
            branch.shared = entry.value
        case "branch_key", ObservedBranch():
            branch.fields = entry.value
        case "outputs_key", ObservedBranch():
            branch.outputs = {task: unpack_output(text) for task, text in entry.value.items()}
        case "commit_log_key", ObservedBranch():
            branch.order = [json.loads(text) for text in entry.value]
        case "waits_key", ObservedBranch():
            branch.waits = {task: int(met) for task, met in entry.value.items()}
        case "open_key", ObservedBranch():
            branch.open = entry.value
        case "checkpoints_key", ObservedBranch():
            branch.checkpoints = [(id, int(seq)) for id, seq in entry.value.items()]
        case "lineage_key", ObservedBranch():
            branch.lineage = {
                id: (seq, at, parent, trigger or "task_completed", task)
                for id, text in entry.value.items()
                for seq, at, parent, trigger, task in [text.split("|", 4)]
            }
        case "task_key", ObservedBranch():
            branch.tasks[entry.parts["task"]] = entry.value
        case "journal_key", ObservedBranch():
            branch.journals[entry.parts["task"]] = entry.value
        case "steps_key", ObservedBranch():
            branch.steps[entry.parts["task"]] = {step: int(seq) for step, seq in entry.value.items()}
        case "journals_key", ObservedBranch():
            branch.kept = {task: int(seq) for task, seq in entry.value.items()}
        case _:
            raise AssertionError(f"{key} is filed nowhere")


def describe(key: str) -> tuple[str, dict[str, str]]:
    """The template that a key was made from, and its parts. Fails if there is none, or more than one."""
    found = [(name, match.groupdict()) for name, pattern in patterns().items() if (match := pattern.fullmatch(key))]
    assert len(found) == 1, f"{key!r} is described by {[name for name, _ in found] or 'no template'}"
    return found[0]
