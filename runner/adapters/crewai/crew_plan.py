"""Builds the plan of a CrewAI crew: its tasks, and what CrewAI does before and after all of them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from crewai import Crew, Task
from crewai.hooks import InterceptionPoint, get_hooks, register_hook, unregister_hook
from crewai.tasks.conditional_task import ConditionalTask
from crewai.utilities.constants import NOT_SPECIFIED

from runner.core.errors import BadCrew
from runner.core.interpolation import placeholders
from runner.core.plan import Plan, PlannedTask, sequential_order
from runner.crews import planning
from runner.crews.callback_state import is_closing
from runner.crews.kickoff_callbacks import AFTER as AFTER
from runner.crews.kickoff_callbacks import BEFORE as BEFORE
from runner.providers.config import CheckpointConfig

SKIPPED = "skipped"  #: stored beside an output that is none

AT_BEGINNING = (InterceptionPoint.EXECUTION_START, InterceptionPoint.INPUT)
AT_END = (InterceptionPoint.OUTPUT, InterceptionPoint.EXECUTION_END)


def plan(crew: Crew, name: str) -> Plan:
    """Build the plan of the crew. Raises `BadCrew` if it has no tasks, a process or a context that cannot be."""
    if not crew.tasks:
        raise BadCrew("the crew has no tasks")
    if crew.process.value not in ("sequential", "hierarchical"):
        raise BadCrew(f"the crew's process is {crew.process.value}; only sequential and hierarchical crews can run")
    tasks = by_key(crew)
    keys = {id(task): key for key, task in tasks.items()}
    first = [*([BEFORE] if has_beginning(crew) else []), *([planning.KEY] if crew.planning else [])]
    order = sequential_order((key, bool(task.async_execution)) for key, task in tasks.items())
    planned = [PlannedTask(key, tuple(first[i - 1 : i]), ()) for i, key in enumerate(first)]
    for key, task in tasks.items():
        after = order[key] or tuple(first[-1:])
        planned.append(PlannedTask(key, after, _context(task, key, keys), timeout=limit(crew, task)))
    if has_end(crew):
        planned.append(PlannedTask(AFTER, _last(order), None))
    called = crew.name if crew.name and crew.name != "crew" else name
    needed = placeholders(texts(crew)) if BEFORE not in first else ()  # what is missing may come from a callback
    return Plan(crew=called, tasks=tuple(planned), inputs=frozenset(needed))


def by_key(crew: Crew) -> dict[str, Task]:
    """Return each task by its key: its name, or ``task_N``. Keys are made unique by a number."""
    found: dict[str, Task] = {}
    for number, task in enumerate(crew.tasks, 1):
        name = (task.name or "").strip()
        usable = name and len(name) <= 200 and name.isprintable()
        key = unique = name if usable else f"task_{number}"
        again = 1
        while unique in found or unique in (BEFORE, AFTER, planning.KEY):
            again += 1
            unique = f"{key}_{again}"
        found[unique] = task
    return found


def staff(crew: Crew) -> list[Any]:
    """Return all agents of a crew, each once."""
    found = [*crew.agents, *(task.agent for task in crew.tasks), crew.manager_agent]
    return list({id(agent): agent for agent in found if agent is not None}.values())


def has_beginning(crew: Crew) -> bool:
    """Whether callbacks or hooks receive the inputs before the first task."""
    return bool(crew.before_kickoff_callbacks or own_hooks(*AT_BEGINNING))


def has_end(crew: Crew) -> bool:
    """Whether something remains to be done after all tasks: callbacks, or finding out which output is the crew's."""
    if own_hooks(*AT_END) or any(not is_closing(callback) for callback in crew.after_kickoff_callbacks):
        return True
    return isinstance(crew.tasks[-1], ConditionalTask) or bool(crew.tasks[-1].async_execution)


def own_hooks(*points: InterceptionPoint) -> list[tuple[InterceptionPoint, Any]]:
    """Return the hooks at these points that the crew's code registered, without the runner's."""
    found = [(point, hook) for point in points for hook in get_hooks(point)]
    return [(point, hook) for point, hook in found if not str(getattr(hook, "__module__", "")).startswith("runner.")]


@contextlib.contextmanager
def hooked(point: InterceptionPoint, hook: Any) -> Iterator[None]:
    """While this is open, CrewAI calls the hook at this point."""
    register_hook(point, hook)
    try:
        yield
    finally:
        unregister_hook(point, hook)


def checkpoints(crew: Crew) -> CheckpointConfig | None:
    """Translate CrewAI's ``checkpoint=`` to a `CheckpointConfig`: which events trigger one, how many are kept."""
    setting: Any = crew.checkpoint
    if setting is False:
        return None
    if setting is None or setting is True:
        return CheckpointConfig()
    return CheckpointConfig(on_events=list(setting.on_events), max_checkpoints=setting.max_checkpoints)


def texts(crew: Crew) -> list[str]:
    """Return all texts of a crew that may contain placeholders for inputs."""
    found = [text for task in crew.tasks for text in task_texts(task)]
    return [*found, *(text for agent in crew.agents for text in agent_texts(agent))]


def task_texts(task: Task) -> list[str]:
    """Return the texts of a task that may contain placeholders."""
    return [task.description or "", task.expected_output or "", task.output_file or ""]


def agent_texts(agent: Any) -> list[str]:
    """Return the texts of an agent that may contain placeholders."""
    return [str(getattr(agent, name, None) or "") for name in ("role", "goal", "backstory")]


def _context(task: Task, key: str, keys: dict[int, str]) -> tuple[str, ...] | None:
    """The keys of the tasks in its context; None for all earlier ones. An async task without a context gets none."""
    if task.context is NOT_SPECIFIED:
        return () if task.async_execution else None
    named = task.context if isinstance(task.context, list) else []
    for other in named:
        if id(other) not in keys:
            raise BadCrew(
                f"task {key!r} has {other.name or 'a task'!r} in its context, which is not one of the crew's tasks"
            )
    return tuple(dict.fromkeys(keys[id(other)] for other in named))


def performer(crew: Crew, task: Task) -> Any:
    """Return the agent that performs a task; None for a manager that CrewAI itself creates."""
    return crew.manager_agent if crew.process.value == "hierarchical" else task.agent


def limit(crew: Crew, task: Task) -> float | None:
    """Return the ``max_execution_time`` of the task's agent in seconds, if it has one."""
    given = getattr(performer(crew, task), "max_execution_time", None)
    return float(given) if isinstance(given, int | float) and given > 0 else None


def _last(order: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The tasks that no other task waits for."""
    waited_for = {key for after in order.values() for key in after}
    return tuple(key for key in order if key not in waited_for)
