"""Events: what happens in a run, who is told, and what is kept of it.

`event_bus` gives each event its ids, its place in the scope and its number, keeps it where recording is armed, and
tells the handlers. The names come when they are asked for, so that a crew file without handlers pays for none of it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from runner.core.compatibility import EVENT_BUS
from runner.events.types import CheckpointEventType as CheckpointEventType

if TYPE_CHECKING:
    from runner.events.base import BaseEvent as BaseEvent
    from runner.events.bus import EventBus as EventBus
    from runner.events.bus import event_bus as event_bus
    from runner.events.bus import is_replaying as is_replaying
    from runner.events.bus import on_signal as on_signal
    from runner.events.bus import set_audience as set_audience
    from runner.events.call_events import *  # noqa: F403
    from runner.events.depends import Depends as Depends
    from runner.events.flow_events import *  # noqa: F403
    from runner.events.ids import event_id_of as event_id_of
    from runner.events.kickoff import BareState as BareState
    from runner.events.kickoff import RuntimeStateLike as RuntimeStateLike
    from runner.events.kickoff import get_emission_sequence as get_emission_sequence
    from runner.events.kickoff import get_last_event_id as get_last_event_id
    from runner.events.kickoff import get_next_emission_sequence as get_next_emission_sequence
    from runner.events.kickoff import reset_emission_counter as reset_emission_counter
    from runner.events.kickoff import reset_last_event_id as reset_last_event_id
    from runner.events.kickoff import set_emission_counter as set_emission_counter
    from runner.events.kickoff import set_last_event_id as set_last_event_id
    from runner.events.kickoff import use_sequence as use_sequence
    from runner.events.listener import BaseEventListener as BaseEventListener
    from runner.events.loading import event_class as event_class
    from runner.events.loading import load_event as load_event
    from runner.events.lock import ForkSafeLock as ForkSafeLock
    from runner.events.pairs import SCOPE_ENDING_EVENTS as SCOPE_ENDING_EVENTS
    from runner.events.pairs import SCOPE_STARTING_EVENTS as SCOPE_STARTING_EVENTS
    from runner.events.pairs import VALID_EVENT_PAIRS as VALID_EVENT_PAIRS
    from runner.events.record import EdgeType as EdgeType
    from runner.events.record import EventNode as EventNode
    from runner.events.record import EventRecord as EventRecord
    from runner.events.scope import EmptyStackError as EmptyStackError
    from runner.events.scope import EventContextConfig as EventContextConfig
    from runner.events.scope import EventPairingError as EventPairingError
    from runner.events.scope import MismatchBehavior as MismatchBehavior
    from runner.events.scope import StackDepthExceededError as StackDepthExceededError
    from runner.events.scope import apply_scope as apply_scope
    from runner.events.scope import capture_scope as capture_scope
    from runner.events.scope import event_scope as event_scope
    from runner.events.scope import event_stack as event_stack
    from runner.events.scope import get_current_parent_id as get_current_parent_id
    from runner.events.scope import get_enclosing_parent_id as get_enclosing_parent_id
    from runner.events.scope import get_triggering_event_id as get_triggering_event_id
    from runner.events.scope import handle_empty_pop as handle_empty_pop
    from runner.events.scope import handle_mismatch as handle_mismatch
    from runner.events.scope import pop_event_scope as pop_event_scope
    from runner.events.scope import push_event_scope as push_event_scope
    from runner.events.scope import restore_event_scope as restore_event_scope
    from runner.events.scope import resume_event_scope as resume_event_scope
    from runner.events.scope import resume_task_scope as resume_task_scope
    from runner.events.scope import set_event_context_config as set_event_context_config
    from runner.events.scope import set_triggering_event_id as set_triggering_event_id
    from runner.events.scope import triggered_by_scope as triggered_by_scope
    from runner.events.system_events import *  # noqa: F403
    from runner.events.work_events import *  # noqa: F403

_MODULES = ("base", "bus", "ids", "kickoff", "listener", "loading", "lock", "pairs", "record", "scope", "depends")
_EVENTS = ("work_events", "flow_events", "call_events", "system_events")


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        for module in (*_EVENTS, *_MODULES) if name.endswith("Event") else (*_MODULES, *_EVENTS):
            found = import_module(f"runner.events.{module}")
            if name in found.__all__:
                return getattr(found, name)
    if name.endswith("Event") and (named := import_module("runner.events.named").named_event(name)) is not None:
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
