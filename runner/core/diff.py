"""Compares two points (`Side`) in a run's history: inputs, each task's status, text, tokens and time. Pure."""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.core.prices import cost_in_words

DONE = "done"
PENDING = "pending"

CONTEXT = 3  #: unchanged lines around each change


@dataclass(frozen=True, slots=True)
class TaskSide:
    """The state of one task on one side. ``tokens`` and ``ms`` are None if they were not recorded."""

    status: str = PENDING
    output: str | None = None
    tokens: int | None = None
    ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its name, the inputs, the tasks in the crew's order, and the ledger of its own tasks."""

    name: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, TaskSide] = field(default_factory=dict)
    ledger: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """An input that one side does not have; ``None`` is a value."""


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class InputDiff:
    """An input that differs."""

    name: str
    a: Any
    b: Any

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it: a side without the input has no key."""
        sides = {"a": self.a, "b": self.b}
        return {"name": self.name, **{side: value for side, value in sides.items() if value is not MISSING}}


@dataclass(frozen=True, slots=True)
class TaskDiff:
    """A task that differs; ``None`` for a side that does not have it."""

    task: str
    a: TaskSide | None
    b: TaskSide | None

    @property
    def how(self) -> str:
        """ "changed", or "only in a" or "only in b" if the other side has no output of it (yet)."""
        there = [side is not None and side.output is not None for side in (self.a, self.b)]
        return "changed" if there[0] == there[1] else f"only in {'a' if there[0] else 'b'}"

    @property
    def text(self) -> list[str]:
        """The unified diff of the two outputs, without file names. JSON is compared line by line."""
        before, after = _readable(*((side.output or "") if side else "" for side in (self.a, self.b)))
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=CONTEXT, lineterm="")
        found = list(lines)[2:]
        if not found and before != after:  # they differ in line ends only
            return [f"-{before!r}", f"+{after!r}"]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {
            "task": self.task,
            "how": self.how,
            "a": self.a.to_dict() if self.a else None,
            "b": self.b.to_dict() if self.b else None,
            "diff": "\n".join(self.text),
        }


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences between ``a`` and ``b``, and the tasks that are equal."""

    a: str
    b: str
    inputs: tuple[InputDiff, ...]
    tasks: tuple[TaskDiff, ...]
    same: int
    alike: tuple[str, ...] = ()
    ledgers: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None] = (None, None)

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not self.inputs and not self.tasks

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {
            "a": self.a,
            "b": self.b,
            "inputs": [one.to_dict() for one in self.inputs],
            "tasks": [one.to_dict() for one in self.tasks],
            "same": self.same,
            "alike": list(self.alike),
            "ledger": dict(zip("ab", self.ledgers, strict=True)),
        }


def compare(a: Side, b: Side) -> Diff:
    """Compare two sides. Tasks with the same status and text are equal, whatever they cost."""
    names = [*a.inputs, *(name for name in b.inputs if name not in a.inputs)]
    inputs = [InputDiff(name, a.inputs.get(name, MISSING), b.inputs.get(name, MISSING)) for name in names]
    keys = [*a.tasks, *(key for key in b.tasks if key not in a.tasks)]
    tasks = [TaskDiff(key, a.tasks.get(key), b.tasks.get(key)) for key in keys]
    differing = tuple(task for task in tasks if _what_counts(task.a) != _what_counts(task.b))
    return Diff(
        a.name,
        b.name,
        tuple(one for one in inputs if one.a != one.b or type(one.a) is not type(one.b)),
        differing,
        len(tasks) - len(differing),
        tuple(task.task for task in tasks if _what_counts(task.a) == _what_counts(task.b)),
        (a.ledger, b.ledger),
    )


def lines(diff: Diff) -> Iterator[str]:
    """Format the differences; each line begins as in a unified diff, so that it can be coloured."""
    yield f"--- {diff.a}"
    yield f"+++ {diff.b}"
    spent = [_spent(ledger) for ledger in diff.ledgers]
    if any(spent):
        yield f" models: {' -> '.join(one or 'none' for one in spent)}"
    if diff.empty:
        yield f" no difference: the same inputs, {_tasks(diff.same)} alike"
        return
    for one in diff.inputs:
        if one.a is not MISSING:
            yield f"-input {one.name} = {_value(one.a)}"
        if one.b is not MISSING:
            yield f"+input {one.name} = {_value(one.b)}"
    for task in diff.tasks:
        yield f"@@ task {task.task}: {_changed(task)} @@"
        yield from task.text
    if diff.same:
        yield f" {_tasks(diff.same)} alike"


def _readable(before: str, after: str) -> tuple[str, str]:
    """Two texts to compare; pretty-printed if both are JSON, or one is and the other is empty."""
    try:
        pretty = [
            json.dumps(json.loads(text), indent=2, ensure_ascii=False) if text else "" for text in (before, after)
        ]
    except ValueError:
        return before, after
    # What differs in how it is written only is shown as it is.
    return (pretty[0], pretty[1]) if pretty[0] != pretty[1] else (before, after)


def _what_counts(side: TaskSide | None) -> tuple[str, str | None] | None:
    return (side.status, side.output) if side else None


def _spent(ledger: Mapping[str, Any] | None) -> str:
    """Describe a side's ledger; "" if it made no model calls."""
    if ledger is None or not any(ledger[name] for name in ("calls", "replayed", "in_doubt")):
        return ""
    parts = [f"{ledger['calls']} paid"]
    parts += [f"{ledger[name]} {name.replace('_', ' ')}" for name in ("replayed", "in_doubt") if ledger[name]]
    parts.append(f"{ledger['prompt_tokens'] + ledger['completion_tokens']:,} tokens")
    return ", ".join(parts + list(filter(None, [cost_in_words(ledger)])))


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _changed(task: TaskDiff) -> str:
    statuses = [side.status if side else "not there" for side in (task.a, task.b)]
    parts = [statuses[0] if statuses[0] == statuses[1] else " -> ".join(statuses)]
    for unit, values in (
        ("tokens", [side.tokens if side else None for side in (task.a, task.b)]),
        ("ms", [side.ms if side else None for side in (task.a, task.b)]),
    ):
        known = ["?" if value is None else str(value) for value in values]
        if known != ["?", "?"]:
            parts.append(f"{known[0] if known[0] == known[1] else ' -> '.join(known)} {unit}")
    return ", ".join(parts)
