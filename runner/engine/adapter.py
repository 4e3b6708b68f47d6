"""The `Adapter` port: what the engine needs from an adapter for one kind of crew."""

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import BaseModel

from runner.core.plan import Plan
from runner.core.plan.expansion import Expand
from runner.engine.work import Work
from runner.events.base import BaseEvent
from runner.providers.config import CheckpointConfig, resolve


class Adapter(Protocol):
    """One kind of crew. A class of its own inherits from this what its kind has nothing of.

    An adapter with ``disposable = True`` has a process for each task, or for several of a run; one with ``remembers =
    True`` has the crew file loaded for each task, because its objects remember what they were asked. One with
    ``only_waits(crew, key)`` says which tasks call no code of the crew's that may block the thread they are done in.
    Where ``is_of_one_task(crew)`` says so, what makes the crew in its file makes another one for each task.
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
        """Do one task and return its output as it is to be stored (see `runner.core.output.dump`)."""

    def warm(self, crew: Any, key: str) -> None:  # noqa: ARG002 - the port's names
        """Load what the task needs and its code does not import: that is not to cost the task's own time."""
        return

    def source(self, crew: Any, key: str) -> object:  # noqa: ARG002 - the port's names
        """What the events of a task come from: the task, as the crew's code has it; where it has none, the crew."""
        return crew

    def retry(self, crew: Any, key: str) -> tuple[int, float]:  # noqa: ARG002 - the port's names
        """How many attempts may follow a failed one, and the first delay in seconds; by default none."""
        return 0, 0.0

    def input_kinds(self, crew: Any) -> dict[str, str]:  # noqa: ARG002 - the port's names
        """Which inputs are no text, as the code declares them, each with what it is in JSON (`core.inputs.KINDS`)."""
        return {}

    def input_names(self, crew: Any) -> list[str] | None:  # noqa: ARG002 - the port's names
        """The names of all inputs that the code takes, where it says; None where it may take others, too."""
        return None

    def output_files(self, crew: Any) -> dict[str, str]:  # noqa: ARG002 - the port's names
        """The files that tasks want their output in, by task."""
        return {}

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:  # noqa: ARG002 - the port's names
        """What the code declares outputs to be, by task; of a flow by method."""
        return {}


class GrowingAdapter(Adapter, Protocol):
    """One kind of crew whose plans grow."""

    def initial_state(self, crew: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What all tasks of a run begin with, to be stored with it. Raises `BadInput`."""

    def trigger(self, event_type: str) -> str:
        """What the store calls an event that is to trigger a checkpoint."""

    def format_event(self, crew: Any, key: str, event: BaseEvent) -> BaseEvent:
        """The store's event of a run or a task, under the name that this kind of crew gives it."""

    def expand(self, crew: Any, work: Work) -> Expand:
        """Do one task; what it gives says how the plan grows by it. Raises `InputRequired` for a person's answer."""
