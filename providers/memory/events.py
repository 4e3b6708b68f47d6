"""The events of a run: one sequence over all workers, with parents; and the events that close with an attempt."""

from typing import NamedTuple

from runner.providers.memory.state import Branch, Run, Task
from runner.providers.records import EVENTS_KEPT, EVENTS_PER_TASK, Event

AGENT = "agent_execution_error"
"""How the execution of an agent ends when it is interrupted."""


class Relatives(NamedTuple):
    """The sequences of the events around another one, ended by it, and that brought it about; 0 for none."""

    parent: int = 0
    started: int = 0
    cause: int = 0


ALONE = Relatives()


def emit(branch: Branch, kind: str, task: str = "", relatives: Relatives = ALONE, /, **fields: object) -> int:
    """Append an event and return its sequence."""
    run = branch.run
    run.sequence += 1
    told = {"branch": branch.name, **({"task": task} if task else {})} | {
        name: str(one) for name, one in fields.items()
    }
    run.events.append(Event(_id(run), run.sequence, kind, told, run.id, *relatives))
    if len(run.events) > EVENTS_KEPT + EVENTS_PER_TASK * run.planned:
        run.events.popleft()
    run.memory.changed.notify_all()
    return run.sequence


def place_of(event_id: str) -> tuple[int, int]:
    """Where an event stands among the others: milliseconds, and a counter within them."""
    at, _, number = event_id.partition("-")
    return int(at), int(number or 0)


def close_open(task: Task, *, handed_over: bool = False) -> None:
    """End events that a task's code left open, innermost first; ``handed_over``, a native agent's stays open."""
    kept, is_native = None, task.branch.run.fields.get("adapter") == "native"
    for one in reversed(task.open):
        if handed_over and is_native and one.ends == AGENT and one.parent == task.started:
            kept = one
        else:
            emit(task.branch, one.ends, one.about, Relatives(one.parent, one.seq), error="interrupted")
    task.open = [kept] if kept is not None else []


def _id(run: Run) -> str:
    """Later than the one before it, whatever the clock does."""
    at = run.memory.now()
    if run.events:
        last, number = place_of(run.events[-1].id)
        if last >= at:
            return f"{last}-{number + 1}"
    return f"{at}-0"
