"""Decides which tasks a new branch runs again, from what each task used. Pure.

A branch points at a position of its parent and sees what was committed up to there, except for the tasks in its
``rerun``, which it runs itself. This set never changes for a branch, unless the crew's code does.
"""

import base64
import difflib
import json
import re
import secrets
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

from runner.core.errors import BadInput, NotFound
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.dependencies import EVERYTHING, NOTHING, ReadSet

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*(/[A-Za-z0-9_][A-Za-z0-9_.+@-]*)*")
LONGEST_NAME = 120


class Identified(Protocol):
    """Anything with an id."""

    @property
    def id(self) -> str:
        """It."""


C = TypeVar("C", bound=Identified)


class Done(NamedTuple):
    """A committed task: its sequence number on its branch, and what it used."""

    task: str
    seq: int
    used: ReadSet = NOTHING


@dataclass(frozen=True, slots=True)
class BranchHistory:
    """One branch, as far as its visible history needs it. ``rerun`` is None if it runs every task itself."""

    name: str
    parent: str
    parent_seq: int
    rerun: frozenset[str] | None
    done: Sequence[Done]


def check_name(name: str) -> str:
    """Return the name if it is valid for a branch. Raises `BadInput`."""
    if name.startswith("/") or ".." in name.split("/"):
        raise BadInput(f"the branch name {name!r} begins with / or has .. as a part: name it like main, or fork/one")
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise BadInput(
            f"{name!r} is not a branch name: use letters, digits and . _ - + @, parts divided by /, as in fork/one"
        )
    return name


def fork_name(checkpoint: str) -> str:
    """Return a unique name for a fork."""
    return f"fork/{checkpoint}_{secrets.token_hex(3)}" if checkpoint else f"fork/{secrets.token_hex(4)}"


def pack(plan: Plan, rerun: Set[str]) -> str:
    """Return the rerun mask, the stored form of the set (field "todo"): a bit for each task of the plan, compressed."""
    bits = "".join(["1" if task.key in rerun else "0" for task in reversed(plan.tasks)])
    packed = int(bits or "0", 2).to_bytes(len(plan.tasks) // 8 + 1, "little")
    return base64.b64encode(zlib.compress(packed, 9)).decode()


def unpack(plan: Plan, text: str) -> frozenset[str]:
    """The inverse of `pack`, on the same plan."""
    bits = zlib.decompress(base64.b64decode(text))
    return frozenset(task.key for i, task in enumerate(plan.tasks) if bits[i // 8] >> i % 8 & 1)


def rebase(rerun: Set[str], old: Plan, new: Plan) -> frozenset[str]:
    """Return the tasks that a branch runs itself after its crew's code has changed: new tasks have no output yet."""
    return frozenset(t.key for t in new.tasks if t.key in rerun or t.key not in old.by_key)


def part(plan: Plan, rerun: Set[str]) -> Plan:
    """Return the plan of a branch that only runs ``rerun``: a task waits also for what lies behind tasks left out."""
    if len(rerun) == len(plan.tasks):
        return plan
    nearest: dict[str, tuple[str, ...]] = {}
    tasks: dict[str, PlannedTask] = {}
    for task in plan.in_order:
        before = [(other,) if other in rerun else nearest[other] for other in task.after]
        found = before[0] if len(before) == 1 else tuple(dict.fromkeys(other for some in before for other in some))
        if task.key in rerun:
            tasks[task.key] = task if task.after == found else task._replace(after=found)
        else:
            nearest[task.key] = found
    return Plan(plan.crew, tuple(tasks[task.key] for task in plan.tasks if task.key in rerun), plan.inputs)


def meant(ids: Iterable[str], beginning: str) -> list[str]:
    """Return the checkpoints that match an id, its beginning, or the beginning of the part after its underscore.

    That part distinguishes checkpoints of the same second, and people copy it.
    """
    known = list(dict.fromkeys(ids))
    found = [one for one in known if one == beginning] or [one for one in known if one.startswith(beginning)]
    return found or [one for one in known if one.partition("_")[2].startswith(beginning)]


def the_one(checkpoints: Iterable[C], beginning: str, of: str, listed: str) -> C:
    """Return the checkpoint that is `meant`. Raises `NotFound` for none or several.

    ``of`` describes whose checkpoints these are, ``listed`` is the command that lists them; both are for the message.
    """
    every = list(checkpoints)
    ids = set(meant([one.id for one in every], beginning))
    found = [one for one in every if one.id in ids]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFound(f"{beginning} begins {len(found)} checkpoints of {of}: give more characters of it")
    raise NotFound(f"{of} has no checkpoint {beginning}: `runner checkpoint list {listed}` lists its checkpoints")


def starts(plan: Plan, rerun: frozenset[str]) -> list[PlannedTask]:
    """Return the tasks with which a branch that runs ``rerun`` begins: those that no other of these precedes."""
    waiting = after(plan, rerun)
    return [task for task in plan.tasks if task.key in rerun and task.key not in waiting]


def after(plan: Plan, keys: frozenset[str]) -> set[str]:
    """Return all tasks that come after one of these, directly or not."""
    found: set[str] = set()
    reached = set(keys)
    for key, before, _ in plan.edges:
        if not reached.isdisjoint(before):
            reached.add(key)
            found.add(key)
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    digest: str
    rerun_mask: str
    plan: Plan = field(compare=False)


@lru_cache(maxsize=64)
def _part_of(asked: _Asked) -> Plan:
    return part(asked.plan, unpack(asked.plan, asked.rerun_mask))


def branch_plan(plan: Plan, rerun_mask: str) -> Plan:
    """Return the plan of a branch by its rerun mask, "" if it runs all. Cached: workers need it for each task."""
    return _part_of(_Asked(plan.digest, rerun_mask, plan)) if rerun_mask else plan


def visible(lines: Iterable[BranchHistory], upto: float = float("inf")) -> dict[str, tuple[str, Done]]:
    """Return the branch and the record of each task committed at a position of a branch: ``lines``, with ancestors."""
    found: dict[str, tuple[str, Done]] = {}
    hidden: set[str] = set()
    for line in lines:
        for done in line.done:
            if done.seq <= upto and done.task not in found and done.task not in hidden:
                found[done.task] = line.name, done
        hidden |= line.rerun or frozenset()
        upto = min(upto, line.parent_seq)
    return found


def invalidated(plan: Plan, done: Mapping[str, ReadSet], edited: frozenset[str], inputs: frozenset[str]) -> set[str]:
    """Return the committed tasks that used something changed: an edited output, an input, or what one of them gave.

    An edited task itself keeps its edit, also one that was edited before.
    """
    if not edited and not inputs:
        return set()
    changed = set(edited)
    reached = set(edited)  # and what comes after something changed
    for key, before, context in plan.edges:
        if not reached.isdisjoint(before):
            reached.add(key)
        used = done.get(key)
        if used is None or used.edited or key in edited:
            continue
        if (
            not changed.isdisjoint(context)
            or not changed.isdisjoint(used.tasks)
            or (EVERYTHING in used.tasks and key in reached)
            or not inputs.isdisjoint(used.inputs)
            or (EVERYTHING in used.inputs and inputs)
        ):
            changed.add(key)
            reached.add(key)
    return changed - edited


def resumable(plan: Plan, unfinished: frozenset[str], edited: frozenset[str], inputs: frozenset[str]) -> frozenset[str]:
    """Return the unfinished tasks that may resume from recorded steps: none if an input changes or after an edit."""
    return frozenset() if inputs else unfinished - after(plan, edited)


def changed_inputs(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the ``given`` inputs that differ."""
    return {name: value for name, value in given.items() if name not in before or not alike(before[name], value)}


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: 1 and true are not, nor 1 and 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def refuse_unknown(known: Collection[str], tasks: Iterable[str], run_id: str) -> None:
    """Raise `BadInput` for the first task that is not known, and suggest the nearest."""
    for key in tasks:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"`runner show {run_id}` lists them"
            raise BadInput(f"run {run_id} has no task {key!r} to edit: {hint}")
