"""Adapters: what turns a kind of crew into a plan, and performs its tasks. The engine knows none of them."""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

from pydantic import BaseModel

from runner.bundles.isolation import on_import
from runner.bundles.program import Program
from runner.bundles.run_dir import Home
from runner.core.errors import BadCrew
from runner.core.plan import Plan
from runner.core.plan.growth import Grow
from runner.engine.work import Work
from runner.events.base import BaseEvent
from runner.snapshots.config import CheckpointConfig

#: The adapters that say ``disposable``, by name, and the modules that make a process ready for their crews.
SURROUNDINGS = dict.fromkeys(("crewai", "crewai-flow", "crewai-program"), "runner.adapters.crewai.process_setup")


class Adapter(Protocol):
    """One kind of crew.

    An adapter with ``disposable = True`` has a process for each task, which ends after it.
    """

    name: str

    def accepts(self, thing: object) -> bool:
        """Whether ``thing`` is a crew of this kind."""

    def plan(self, crew: Any, name: str) -> Plan:
        """The crew's plan; ``name`` is for a crew that has none. Raises `BadCrew`."""

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:
        """When the crew wants checkpoints on the fleet; None for never."""

    def perform(self, crew: Any, work: Work) -> str:
        """Do one task and return its output as it is to be stored (see `runner.core.output.dump`)."""

    def warm(self, crew: Any, key: str) -> None:
        """Load what the task needs and its code does not import: that is not to cost the task's own time."""

    def source(self, crew: Any, key: str) -> object:
        """What the events of a task come from: the task, as the crew's code has it."""

    def retry(self, crew: Any, key: str) -> tuple[int, float]:
        """How many attempts may follow a failed one, and the first delay in seconds."""

    def output_files(self, crew: Any) -> dict[str, str]:
        """The files that tasks want their output in, by task."""

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:
        """What the code declares outputs to be, by task; of a flow by method."""


class GrowingAdapter(Adapter, Protocol):
    """One kind of crew whose plans grow."""

    def beginning(self, crew: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What all tasks of a run begin with, to be stored with it. Raises `BadInput`."""

    def trigger(self, event_type: str) -> str:
        """What the store calls an event that is to trigger a checkpoint."""

    def in_words(self, crew: Any, key: str, event: BaseEvent) -> BaseEvent:
        """An event that the store tells of a run or a task, as this kind of crew calls it."""

    def grow(self, crew: Any, work: Work) -> Grow:
        """Do one task; what it gives says how the plan grows by it. Raises `Asked` where a person has to answer."""


def adapter_of(thing: object) -> Adapter | None:
    """The adapter that accepts ``thing``, if any does."""
    from runner.crews.adapter import NATIVE

    if NATIVE.accepts(thing):
        return NATIVE
    if _is_flow(thing, crewai=False):
        from runner.flows.adapter import FLOW

        return FLOW
    if isinstance(thing, Program):
        from runner.adapters.crewai import CREWAI_PROGRAM

        return CREWAI_PROGRAM
    if _has_crewai():
        from runner.adapters.crewai import CREWAI
        from runner.adapters.crewai.flows import CREWAI_FLOW

        return CREWAI if CREWAI.accepts(thing) else CREWAI_FLOW if CREWAI_FLOW.accepts(thing) else None
    return None


def is_disposable(name: str) -> bool:
    """Whether the adapter of this name has a process for each task."""
    return name in SURROUNDINGS


def preload(name: str) -> None:
    """Import what crews of this kind need, where processes are forked from; nothing if it is not installed."""
    if name in SURROUNDINGS:
        import_module(SURROUNDINGS[name]).preload(name)


def untested(name: str) -> str | None:
    """A line to say where crews of this kind need something that is here in a version that nobody tested."""
    if name not in SURROUNDINGS:
        return None
    found: str | None = import_module(SURROUNDINGS[name]).untested()
    return found


def quiet() -> None:
    """Before any crew file is loaded here: have what it may import not say more than was asked for."""
    for module in set(SURROUNDINGS.values()):
        import_module(module).quiet()


def prepare(name: str, home: Home) -> None:
    """Make this process ready for crews of this kind, before the code of one is loaded."""
    if name in SURROUNDINGS:
        import_module(SURROUNDINGS[name]).prepare(home)


def growing(adapter: Adapter) -> GrowingAdapter | None:
    """The adapter as one whose plans grow, if they do."""
    return adapter if hasattr(adapter, "grow") else None  # type: ignore[return-value]


def chosen(things: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Of the crews of a file, those that are meant to be run: flows rather than the crews that they kick off, a flow
    rather than its class, a class rather than those that it is made of."""
    flows = [(name, thing) for name, thing in things if _is_flow(thing)]
    made = [(name, flow) for name, flow in flows if not isinstance(flow, type)]
    owners = [(name, flow) for name, flow in flows if isinstance(flow, type)]
    last = [(n, one) for n, one in owners if not any(o is not one and issubclass(o, one) for _, o in owners)]
    return made or list(last) or things


def is_crew(thing: object) -> bool:
    """Whether some adapter can run it."""
    return adapter_of(thing) is not None


def required(thing: object) -> Adapter:
    """The adapter that accepts ``thing``. Raises `BadCrew`."""
    adapter = adapter_of(thing)
    if adapter is None:
        raise BadCrew(f"a {type(thing).__qualname__} is not a crew that can be run")
    return adapter


def makers(module: ModuleType) -> list[str]:
    """What in a module makes a crew when it is called, by name."""
    if not _has_crewai():
        return []
    from runner.adapters.crewai import discovery

    return discovery.makers(module)


def inputs_of(crew: object) -> dict[str, Any]:
    """The inputs that a crew's own file kicks it off with."""
    if not _has_crewai():
        return {}
    from runner.adapters.crewai import discovery

    return discovery.inputs_of(crew)


def _has_crewai() -> bool:
    return "crewai.crew" in sys.modules


def _crewai_imported() -> None:
    if _has_crewai():
        from runner.adapters.crewai import discovery, event_routing, knowledge, process_setup

        process_setup.lock_here()
        discovery.watch()
        event_routing.watch()
        knowledge.watch()


on_import["crewai"] = _crewai_imported


def _is_flow(thing: object, *, crewai: bool = True) -> bool:
    """Whether it is a flow. Where nobody imported flows, nothing is one, and nobody pays for the import."""
    if "runner.flows.flow" in sys.modules:
        from runner.flows.adapter import FLOW

        if FLOW.accepts(thing):
            return True
    if crewai and _has_crewai():
        from runner.adapters.crewai.flows import CREWAI_FLOW

        return CREWAI_FLOW.accepts(thing)
    return False
