"""Random plans: sequential, tasks side by side, graphs; with names that are hard on whoever builds keys or JSON."""

from typing import Any

from hypothesis import strategies as st

from runner.core.plan import THREAD, Plan, PlannedTask, sequential_order
from runner.providers.config import CheckpointEventType

NAMES = (
    *("collect", 'it\'s "quoted"', "Größe 測定 🚀", "100%d %1 %%", "@RUN@ @TASK@ @BODYTASK@", "back\\slash\\n"),
    *("a|b|c", "x:task:y:journal:z"),
)
TRIGGERS = [event for event in CheckpointEventType.__args__ if event != "*"]


@st.composite
def plans(draw: Any) -> Plan:
    """One to eight tasks."""
    names = draw(st.permutations(NAMES))[: draw(st.sampled_from([3, 4, 5, 1, 2, 6, 8]))]
    if draw(st.integers(0, 2)) == 0:
        order = sequential_order((name, draw(st.booleans())) for name in names)
    else:
        order = {
            name: tuple(draw(st.lists(st.sampled_from(names[:i]), unique=True, max_size=2))) if i else ()
            for i, name in enumerate(names)
        }
        names = draw(st.permutations(names))  # a graph's tasks may stand in any order
    return Plan("a crew", tuple(_task(draw, name, order[name]) for name in names))


def longer(plan: Plan) -> Plan:
    """The plan of a crew file to which somebody added a task."""
    last = PlannedTask(f"added {len(plan.tasks)}", tuple(task.key for task in plan.tasks[-2:]))
    return Plan(plan.crew, (*plan.tasks, last), plan.inputs)


def _task(draw: Any, name: str, after: tuple[str, ...]) -> PlannedTask:
    context = draw(st.sampled_from([None, after, after[:1]]))
    timeout, pool = draw(st.sampled_from([None, None, 2.5])), draw(st.sampled_from(["", "", THREAD]))
    return PlannedTask(name, after, context, timeout, pool)


def options() -> st.SearchStrategy[dict[str, Any]]:
    """How a run is created."""
    return st.fixed_dictionaries(
        {
            "queue": st.integers(0, 1),
            "relayed": st.sampled_from([False, False, False, True]),
            "bundle": st.sampled_from(["b0", "b0", "b1", ""]),
            "triggers": st.one_of(
                st.just(frozenset(["*"])),
                st.just(frozenset(["task_completed"])),
                st.frozensets(st.sampled_from(TRIGGERS)),
            ),
            "most": st.integers(0, 3),
        }
    )
