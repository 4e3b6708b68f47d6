"""The plan of a crew: its tasks and their dependencies. Pure: no I/O, no clock.

A worker derives it from the crew file again; the digest shows whether it is the same.
"""

import gc
import hashlib
import json
import re
from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from runner.core.errors import BadCrew

THREAD = "thread"  #: the pool of tasks that mostly wait


class PlannedTask(NamedTuple):
    """One task of a plan. A tuple, because a plan may have thousands and a client reads it while a person waits.

    Attributes:
        after: the tasks that must be committed before it may run.
        context: the tasks whose outputs it declares; they come with the claim. None if it declares none.
        timeout: in seconds.
        pool: `THREAD` if it mostly waits, so that a process performs many at once; otherwise it has a process to
            itself.
    """

    key: str
    after: tuple[str, ...] = ()
    context: tuple[str, ...] | None = None
    timeout: float | None = None
    pool: str = ""

    def may_run(self, committed: Container[str]) -> bool:
        """Whether everything that it waits for is committed."""
        return all(key in committed for key in self.after)


class _Growing(dict[str, PlannedTask]):
    def __init__(self, known: Mapping[str, PlannedTask], grows: Mapping[str, Any]) -> None:
        super().__init__(known)
        self._timeouts = {method["name"]: method.get("timeout") for method in grows["methods"]}

    def __missing__(self, key: str) -> PlannedTask:
        return PlannedTask(key, timeout=self._timeouts.get(key.partition("#")[0]))


@dataclass(frozen=True)
class Plan:
    """The tasks of a crew, in the crew file's order. The last one's output is the run's result.

    A dynamic plan (`runner.core.plan.expansion`) has its first tasks in ``tasks``; ``grows`` is the definition that
    decides which follow, and the result is the output committed last. ``inputs`` are the required inputs; ``takes`` are
    the names of all that it accepts, if it accepts no others.
    """

    crew: str
    tasks: tuple[PlannedTask, ...]
    inputs: frozenset[str] = field(default=frozenset())
    grows: Mapping[str, Any] | None = None
    takes: tuple[str, ...] | None = None

    @cached_property
    def by_key(self) -> Mapping[str, PlannedTask]:
        """Each task by its key; in a dynamic plan, also one that may exist by now."""
        known = {task.key: task for task in self.tasks}
        return _Growing(known, self.grows) if self.grows else known

    @property
    def total(self) -> int | None:
        """The number of tasks; None if unknown."""
        return None if self.grows else len(self.tasks)

    def shown(self, known: Iterable[str]) -> tuple[PlannedTask, ...]:
        """Return the tasks to show; in a dynamic plan, those that are ``known`` so far."""
        return tuple(self.by_key[key] for key in dict.fromkeys(known)) if self.grows else self.tasks

    @cached_property
    def in_order(self) -> tuple[PlannedTask, ...]:
        """The tasks, each after those that it waits for. Usually they are in that order; a graph may not be."""
        seen: set[str] = set()
        found: list[PlannedTask] = []
        later = list(self.tasks)
        while later:
            left: list[PlannedTask] = []
            for task in later:
                if seen.issuperset(task.after):
                    seen.add(task.key)
                    found.append(task)
                else:
                    left.append(task)
            later = left
        return tuple(found)

    @cached_property
    def edges(self) -> tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]:
        """The tasks as tuples of key, prerequisites and context, for fast traversal."""
        return tuple([(key, after, context or ()) for key, after, context, *_ in self.in_order])

    @cached_property
    def dependents(self) -> Mapping[str, tuple[PlannedTask, ...]]:
        """For each task, the tasks that wait for it."""
        found: dict[str, list[PlannedTask]] = {task.key: [] for task in self.tasks}
        for task in self.tasks:
            for key in task.after:
                found[key].append(task)
        return {key: tuple(waiting) for key, waiting in found.items()}

    @property
    def result(self) -> str:
        """The task whose output is the run's result; "" if that is the one committed last."""
        return "" if self.grows else self.tasks[-1].key

    def earlier(self, key: str) -> list[str]:
        """Return every task that is certain to be committed when ``key`` runs, in the plan's order."""
        seen: set[str] = set()
        todo = list(self.by_key[key].after)
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo.extend(self.by_key[one].after)
        return [task.key for task in self.tasks if task.key in seen]

    @cached_property
    def first(self) -> tuple[PlannedTask, ...]:
        """The tasks that a run begins with."""
        return tuple(frontier(self, frozenset()))

    def to_json(self) -> str:
        """Return the stored form: compact, and the same on every machine."""
        return self._stored

    @cached_property
    def _stored(self) -> str:
        tasks: list[dict[str, Any]] = []
        for task in self.tasks:
            entry: dict[str, Any] = {"key": task.key}
            if task.after:
                entry["after"] = task.after
            if task.context is not None:
                entry["context"] = task.context
            if task.timeout is not None:
                entry["timeout"] = task.timeout
            if task.pool:
                entry["pool"] = task.pool
            tasks.append(entry)
        plan: dict[str, Any] = {"crew": self.crew, "inputs": sorted(self.inputs), "tasks": tasks}
        if self.grows:
            plan["grows"] = self.grows
        if self.takes is not None:
            plan["takes"] = self.takes
        return json.dumps(plan, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits that identify the plan. The pools of its tasks do not count."""
        tasks = tuple([task._replace(pool="") if task.pool else task for task in self.tasks])
        return hashlib.sha256(replace(self, tasks=tasks).to_json().encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The inverse of `to_json`."""
        collects = gc.isenabled()
        gc.disable()  # thousands of objects, all of which stay: looking for cycles in them took longer than making them
        try:
            data = json.loads(text)
            tasks = [
                PlannedTask(
                    entry["key"],
                    tuple(entry["after"]) if "after" in entry else (),
                    tuple(entry["context"]) if "context" in entry else None,
                    entry.get("timeout"),
                    entry.get("pool", ""),
                )
                for entry in data["tasks"]
            ]
        finally:
            if collects:
                gc.enable()
        takes = tuple(data["takes"]) if "takes" in data else None
        return cls(data["crew"], tuple(tasks), frozenset(data["inputs"]), data.get("grows"), takes)


def queue_for(queue: str, pool: str | None) -> str:
    """Return the queue for tasks with this `PlannedTask.pool`: tasks that mostly wait have a separate one."""
    return re.sub("^runner:p", "runner:t", queue) if pool == THREAD else queue


def frontier(plan: Plan, committed: Set[str]) -> list[PlannedTask]:
    """Return the tasks that may run now: not committed, with all prerequisites committed."""
    return [task for task in plan.tasks if task.key not in committed and task.may_run(committed)]


def waits(plan: Plan, committed: Set[str]) -> dict[str, int]:
    """For each task of whose several prerequisites some are committed, and some not, return how many are."""
    found = {}
    for task in plan.tasks:
        met = sum(key in committed for key in task.after)
        if len(task.after) > 1 and 0 < met < len(task.after):
            found[task.key] = met
    return found


def sequential_order(tasks: Iterable[tuple[str, bool]]) -> dict[str, tuple[str, ...]]:
    """Return the prerequisites of each task of ``(key, is_async)`` when tasks run one after the other.

    Adjacent async tasks start together; the next synchronous task waits for all of them.
    """
    order: dict[str, tuple[str, ...]] = {}
    barrier: tuple[str, ...] = ()
    beside: list[str] = []
    for key, is_async in tasks:
        if is_async:
            order[key] = barrier
            beside.append(key)
        else:
            order[key] = tuple(beside) or barrier
            barrier, beside = (key,), []
    return order


def refuse_cycles(after: Mapping[str, Iterable[str]]) -> None:
    """Raise `BadCrew` with the names on the first cycle found."""
    done: set[str] = set()
    for start in after:
        path: list[str] = []
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            key, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(key)
            elif key in path:
                raise BadCrew(f"the tasks wait for each other: {' -> '.join([*path[path.index(key) :], key])}")
            elif key not in done:
                path.append(key)
                stack.append((key, True))
                stack.extend((other, False) for other in after[key])
