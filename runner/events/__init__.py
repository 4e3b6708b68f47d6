"""Events: what happens in a run, which handlers are called, and what is recorded.

`event_bus` numbers, places, records and delivers them. Names are loaded when asked for.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runner.core.compatibility import EVENT_BUS
from runner.events.types import CheckpointEventType as CheckpointEventType

if TYPE_CHECKING:
    from runner.events.base import *
    from runner.events.bus import *
    from runner.events.call_events import *
    from runner.events.depends import *
    from runner.events.flow_events import *
    from runner.events.ids import *
    from runner.events.kickoff import *
    from runner.events.listener import *
    from runner.events.loading import *
    from runner.events.pairs import *
    from runner.events.record import *
    from runner.events.scope import *
    from runner.events.system_events import *
    from runner.events.work_events import *

_MODULES = ("base", "bus", "ids", "kickoff", "listener", "loading", "pairs", "record", "scope", "depends")
_EVENTS = ("work_events", "flow_events", "call_events", "system_events")


def __getattr__(name: str) -> Any:
    if name in (*_MODULES, *_EVENTS):
        return import_module(f"runner.events.{name}")
    if not name.startswith("_"):
        for module in (*_EVENTS, *_MODULES) if name.endswith("Event") else (*_MODULES, *_EVENTS):
            found = import_module(f"runner.events.{module}")
            if name in getattr(found, "__all__", vars(found)):
                return getattr(found, name)
    if (
        name.endswith(("Event", "EventBase"))
        and (named := import_module("runner.events.named").named_event(name)) is not None
    ):
        return named
    if name == EVENT_BUS:
        return import_module("runner.events.bus").event_bus
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Events(ModuleType):
    """Here ``event_bus`` is the bus, also once the import path of this name was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "event_bus" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Events
