"""The `Adapter` port: what the engine needs from an adapter for one kind of crew."""

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel

from runner.bundles import script
from runner.bundles.program import Program
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expand
from runner.engine.work import Work
from runner.events.base import BaseEvent
from runner.providers.config import CheckpointConfig, resolve


class Adapter(Protocol):
    """One kind of crew. A subclass overrides what its kind needs.

    It may also have what is not in this port, and is not so by default: ``remembers``, true if the crew file is loaded
    for each task, because its objects keep state; ``only_waits(crew, key)``, whether the task calls no code of the crew
    that may block its thread; ``is_of_one_task(crew)``, whether the factory in the crew file is called for each task.
    """

    name: str

    def accepts(self, thing: object) -> bool:
        """Whether ``thing`` is a crew of this kind."""

    def plan(self, crew: Any, name: str) -> Plan:
        """The crew's plan; ``name`` is for a crew that has none. Raises `BadCrew`."""

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:  # noqa: ARG002 - the port's names
        """When the crew wants checkpoints on the fleet; None for never. By default after each task."""
        return resolve(None)

    def perform(self, crew: Any, work: Work) -> str:
        """Perform one task and return its output as it is to be stored (see `runner.core.output.dump`)."""

    def warm(self, crew: Any, key: str) -> None:  # noqa: ARG002 - the port's names
        """Load what the task needs and its code does not import, before the task's timeout begins."""
        return

    def source(self, crew: Any, key: str) -> object:  # noqa: ARG002 - the port's names
        """Return the source of a task's events: the task in the crew's code, or the crew if it has none."""
        return crew

    def retry(self, crew: Any, key: str) -> tuple[int, float]:  # noqa: ARG002 - the port's names
        """Return how many attempts may follow a failed one, and the first delay in seconds. Default: none."""
        return 0, 0.0

    def input_kinds(self, crew: Any) -> dict[str, str]:  # noqa: ARG002 - the port's names
        """Return the declared types of the inputs that are not text (`core.inputs.KINDS`), by name."""
        return {}

    def input_names(self, crew: Any) -> list[str] | None:  # noqa: ARG002 - the port's names
        """Return the names of all inputs that the code takes; None if it may take others."""
        return None

    def output_files(self, crew: Any) -> dict[str, str]:  # noqa: ARG002 - the port's names
        """Return the output file of each task that has one."""
        return {}

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:  # noqa: ARG002 - the port's names
        """Return the declared types of outputs by task; for a flow, by method."""
        return {}


class ProgramAdapter(Adapter, Protocol):
    """Programs (a function, a method, a file run as a script), each as one task."""

    def accepts(self, thing: object) -> bool:
        """Whether this is a `Program`."""
        return isinstance(thing, Program)

    def plan(self, crew: Program, name: str) -> Plan:
        """One task, named like the function. Its inputs are the arguments that it needs."""
        key = "main" if crew.name == script.NAME else crew.name
        names = self.input_names(crew)
        takes = None if names is None else tuple(names)
        return Plan(crew=name, tasks=(PlannedTask(key),), inputs=frozenset(crew.needs), takes=takes)

    def input_kinds(self, crew: Program) -> dict[str, str]:
        """Return the type of each argument, by name, as the function annotates it."""
        return dict(crew.kinds)


class GrowingAdapter(Adapter, Protocol):
    """One kind of crew with dynamic plans."""

    def initial_state(self, crew: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the initial shared texts of a run, to be stored with it. Raises `BadInput`."""

    def trigger(self, event_type: str) -> str:
        """Return the store's name for an event that triggers checkpoints."""

    def format_event(self, crew: Any, key: str, event: BaseEvent) -> BaseEvent:
        """Convert the store's event of a run or a task to the name that this kind of crew gives it."""

    def expand(self, crew: Any, work: Work) -> Expand:
        """Perform one task; the result says how the plan grows. Raises `InputRequired` to wait for a person."""
