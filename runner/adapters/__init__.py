"""Adapters: what turns a kind of crew into a plan, and performs its tasks. The engine knows none of them."""

from typing import Any, Protocol

from runner.config import CheckpointConfig
from runner.errors import BadCrew
from runner.plan import Plan
from runner.work import Work


class Adapter(Protocol):
    """One kind of crew."""

    name: str

    def accepts(self, thing: object) -> bool:
        """Whether ``thing`` is a crew of this kind."""

    def plan(self, crew: Any, name: str) -> Plan:
        """The crew's plan; ``name`` is for a crew that has none. Raises `BadCrew`."""

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:
        """When the crew wants checkpoints on the fleet; None for never."""

    def perform(self, crew: Any, work: Work) -> str:
        """Do one task and return its output as it is to be stored (see `runner.output.dump`)."""

    def source(self, crew: Any, key: str) -> object:
        """What the events of a task come from: the task, as the crew's code has it."""

    def retry(self, crew: Any, key: str) -> tuple[int, float]:
        """How many attempts may follow a failed one, and the first delay in seconds."""

    def output_files(self, crew: Any) -> dict[str, str]:
        """The files that tasks want their output in, by task."""


def adapter_of(thing: object) -> Adapter | None:
    """The adapter that accepts ``thing``, if any does."""
    from runner.adapters.native import NATIVE

    return next((adapter for adapter in (NATIVE,) if adapter.accepts(thing)), None)


def is_crew(thing: object) -> bool:
    """Whether some adapter can run it."""
    return adapter_of(thing) is not None


def required(thing: object) -> Adapter:
    """The adapter that accepts ``thing``. Raises `BadCrew`."""
    adapter = adapter_of(thing)
    if adapter is None:
        raise BadCrew(f"a {type(thing).__qualname__} is not a crew that can be run")
    return adapter
