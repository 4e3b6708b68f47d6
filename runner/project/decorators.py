"""What the methods of a class of crews are: ``@agent``, ``@task``, ``@crew``, what they use, and callbacks.

What a method makes is made once for each object: a task's agent is the one that the crew has.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from runner.core.errors import BadCrew
from runner.core.plain_text import of_class
from runner.core.waiting import awaited
from runner.crews.crew import Crew

C = TypeVar("C")

_MADE = "_made_by_methods"
"""The attribute of an object of such a class that holds what its methods made."""


def agent(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method makes an agent."""
    return _marked(_once(method), "agent")


def task(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method makes a task, which has the method's name where it is given none."""

    @functools.wraps(method)
    def named(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = _awaited(method(self, *args, **kwargs))
        if getattr(made, "name", method.__name__) is None:
            made.name = method.__name__
        return made

    return _marked(_once(named), "task")


def llm(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method makes a model, which ``llm:`` in the YAML of agents names."""
    return _marked(_once(method), "llm")


def tool(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method makes a tool, which ``tools:`` in YAML names."""
    return _marked(_once(method), "tool")


def callback(method: C) -> C:
    """The method is a callback, which ``callback:``, ``callbacks:`` or ``step_callback:`` in YAML name."""
    return _marked(method, "callback")


def cache_handler(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method makes what keeps the results of tools: the journal does that, so nothing here asks for it."""
    return _marked(_once(method), "cache_handler")


def output_json(model: C) -> C:
    """The class in this class is a form of JSON that ``output_json:`` in the YAML of tasks names."""
    return _marked(model, "output_json")


def output_pydantic(model: C) -> C:
    """The class in this class is a model that ``output_pydantic:`` in the YAML of tasks names."""
    return _marked(model, "output_pydantic")


def before_kickoff(method: C) -> C:
    """The method is called with the inputs before the first task; those that it returns are what the tasks get."""
    return _marked(method, "before_kickoff")


def after_kickoff(method: C) -> C:
    """The method is called with the crew's output after the last task; what it returns is the kickoff's."""
    return _marked(method, "after_kickoff")


def crew(method: Callable[..., Crew]) -> Callable[..., Crew]:
    """The method makes the crew, of ``self.agents`` and ``self.tasks``: those that the other methods make."""

    @functools.wraps(method)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Crew:
        tasks = [getattr(self, name)() for name in marked(type(self), "task")]
        agents = [one.agent for one in tasks if getattr(one, "agent", None) is not None]
        agents += [getattr(self, name)() for name in marked(type(self), "agent")]
        self.tasks, self.agents = tasks, list({one.role: one for one in reversed(agents)}.values())[::-1]
        made = _awaited(method(self, *args, **kwargs))
        if not isinstance(made, Crew):
            raise BadCrew(f"{type(self).__name__}.{method.__name__}() returned {of_class(made)}, not a crew")
        if made.name is None:
            made.name = type(self).__name__
        made.before_kickoff_callbacks += [getattr(self, name) for name in marked(type(self), "before_kickoff")]
        made.after_kickoff_callbacks += [getattr(self, name) for name in marked(type(self), "after_kickoff")]
        made.made_by = self
        return made

    return _marked(_once(whole), "crew")


def marked(owner: type, what: str) -> Iterator[str]:
    """The names in a class, and those that it inherits, of what is ``what``; in the order in which they are written."""
    names = dict.fromkeys(name for one in reversed(owner.__mro__) for name in vars(one))
    return (name for name in names if hasattr(inspect.getattr_static(owner, name), f"is_{what}"))


def _marked(thing: C, what: str) -> C:
    setattr(thing, f"is_{what}", True)
    return thing


def _once(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, called once for each object and each set of arguments."""

    @functools.wraps(method)
    def once(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = self.__dict__.setdefault(_MADE, {})
        key = method.__name__, repr((args, sorted(kwargs.items())))
        if key not in made:
            made[key] = _awaited(method(self, *args, **kwargs))
        return made[key]

    return once


def _awaited(value: Any) -> Any:
    """The value; of an async method what it gives, in a thread where a loop is running in this one."""
    if not inspect.isawaitable(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited(value))
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, awaited(value)).result()
