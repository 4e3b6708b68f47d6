"""Finds what creates a crew in a file that has no crew object: functions and classes of ``main.py``, and JSON files.

A file that is being read kicks nothing off and asks no model: it is stopped there. The crew that was to be kicked off
is the one that it means, with the inputs that it was to get; where it does more than that, all it does is one task.
"""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from crewai import LLM, Agent, BaseLLM, Crew
from crewai.flow import Flow
from crewai.hooks import InterceptionPoint, get_hooks, register_hook
from crewai.project import load_crew
from pydantic import BaseModel

from runner.bundles import reading
from runner.bundles.factories import Kinds
from runner.bundles.factories import factories as factories_of

_STOPPED = ("kickoff", "kickoff_async", "akickoff")
_KINDS = Kinds(Crew, (BaseModel, Flow), (LLM, BaseLLM))


def watch() -> None:
    """From here on, a kickoff or a model call ends the reading of a file instead of being carried out."""
    if _stop_call in get_hooks(InterceptionPoint.PRE_MODEL_CALL):
        return
    register_hook(InterceptionPoint.PRE_MODEL_CALL, _stop_call)
    for owner in (Crew, Flow, Agent):
        for name in _STOPPED:
            setattr(owner, name, _unless_read(getattr(owner, name)))


def from_json(file: str) -> Crew:
    """Load the crew of a ``crew.jsonc``."""
    crew, inputs = load_crew(file)
    return reading.with_inputs(crew, inputs)


def factories(module: ModuleType) -> list[str]:
    """Return the names of a module's functions and classes that create a crew; see `runner.bundles.factories`."""
    return factories_of(module, _KINDS)


def _unless_read(method: Callable[..., Any]) -> Callable[..., Any]:
    def kickoff(self: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = None if isinstance(self, Agent) else kwargs.get("inputs", args[0] if args else None)
        reading.stop_if_read(None if isinstance(self, Agent) else self, inputs)
        return method(self, *args, **kwargs)

    async def akickoff(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await kickoff(self, *args, **kwargs)

    return functools.wraps(method)(akickoff if inspect.iscoroutinefunction(method) else kickoff)


def _stop_call(context: Any) -> None:  # noqa: ARG001 - a hook's argument
    reading.stop_if_read(None)
