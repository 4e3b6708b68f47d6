"""Each use of a tool is a step of the task around it, whoever's agent uses it: recorded, and replayed when it restarts.

A use is known by the tool's name, its arguments and its occurrence, like any step. What a tool gives is recorded with
its type, so that its framework shows a model the same after a restart; what it raises is recorded, too.
"""

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from pydantic import BaseModel

from runner.core import encoding
from runner.core.errors import BadInput
from runner.core.idempotency import keyed, origin
from runner.journal import enclosing
from runner.journal.enclosing import current_journal

T = TypeVar("T")
P = ParamSpec("P")

About = Callable[..., tuple[str, Any] | None]
"""Gives the name of a tool and its arguments, of what the function that uses it is called with; None: no step is made
of this use."""

_PLAIN = (str, int, float, bool, type(None), bytes, list, tuple, dict, set, frozenset, BaseModel)


class ToolRaised(Exception):
    """What a tool raised when it was really used, where its own class is not found any more: the same text."""


def durable(fn: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that each call of it inside a task is a step: it happens once, whatever dies.

    ``fn`` may be async. It fits under the decorators by which frameworks make tools of functions (``@tool``,
    ``@function_tool``): name, signature and docstring stay. Outside of a task it is called as it is. Arguments that are
    no values (a framework's context) count by their type. Raises what ``fn`` raises, on replay too.
    """
    return cast("Callable[P, T]", recorded(fn, functools.partial(_about_function, fn)))


def record_uses(owner: Any, name: str, about: About, *, passing: tuple[type[BaseException], ...] = ()) -> None:
    """From here on each call by which a framework uses its tools is a step, in the tasks of this process.

    ``owner`` is the class that has the method ``name``, or the module that has the function; see `recorded` for the
    rest. Done once in a process, however often it is called; nothing is done where there is no such name.
    """
    found = inspect.getattr_static(owner, name, None)
    if found is not None:
        setattr(owner, name, recorded(found, about, passing=passing))


def recorded(
    fn: Callable[..., Any], about: About, *, passing: tuple[type[BaseException], ...] = ()
) -> Callable[..., Any]:
    """``fn``, each call of which is a step inside a task; ``fn`` itself where that was done, or if it is a generator.

    ``about`` is called with its arguments. What is ``passing`` is raised by it to say something else than that a tool
    failed, and is not recorded.
    """
    if hasattr(fn, "records_uses") or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        return fn
    wrapped = functools.wraps(fn)(_recording(fn, about, passing))
    wrapped.records_uses = True  # type: ignore[attr-defined]
    return wrapped


def _recording(fn: Callable[..., Any], about: About, passing: tuple[type[BaseException], ...]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        found = current_journal()
        known = about(*args, **kwargs) if found is not None else None
        if found is None or known is None:
            return fn(*args, **kwargs)
        use = _Use(passing)

        def once(*_: Any) -> dict[str, Any]:
            with keyed(_key()):
                try:
                    return use.gave(fn(*args, **kwargs))
                except Exception as error:
                    return use.raised(error)

        return use.result(found[0].step(f"tool {known[0]}", once, (known[1],), {}, kind="tool"))

    async def acall(*args: Any, **kwargs: Any) -> Any:
        found = current_journal()
        known = about(*args, **kwargs) if found is not None else None
        if found is None or known is None:
            return await fn(*args, **kwargs)
        use = _Use(passing)

        async def once(*_: Any) -> dict[str, Any]:
            with keyed(_key()):
                try:
                    return use.gave(await fn(*args, **kwargs))
                except Exception as error:
                    return use.raised(error)

        return use.result(await found[0].step(f"tool {known[0]}", once, (known[1],), {}, kind="tool"))

    return acall if inspect.iscoroutinefunction(fn) else call


def _about_function(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, Any]:
    name = getattr(fn, "__name__", type(fn).__name__)
    return name, [[_known_by(one) for one in args], {key: _known_by(one) for key, one in kwargs.items()}]


def _known_by(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else f"<{type(value).__qualname__}>"


def _key() -> str:
    """Of the step that is being done: the same whenever it is begun again."""
    frame, first = enclosing.current_step.get(), origin()
    return f"{first}:{hashlib.sha256(frame.key.encode()).hexdigest()[:16]}" if frame is not None and first else ""


class _Use:
    """One use: what it gave is here where it was really made, and read from its record where it was not."""

    def __init__(self, passing: tuple[type[BaseException], ...]) -> None:
        self._passing = passing
        self._given: list[Any] = []
        self._error: Exception | None = None

    def gave(self, value: Any) -> dict[str, Any]:
        self._given = [value]
        try:
            data, types = encoding.encode(value, _name_of)
        except encoding.NotCarried:
            return {"text": str(value)}
        return {"value": data, "types": types} if types else {"value": data}

    def raised(self, error: Exception) -> dict[str, Any]:
        if isinstance(error, self._passing):
            raise error
        self._error = error
        try:
            about = encoding.encode(list(error.args), _name_of)
        except encoding.NotCarried:
            about = [], []
        return {"raised": [_name_of(type(error)), str(error), *about]}

    def result(self, recorded: Mapping[str, Any]) -> Any:
        """What the tool gave. Raises what it raised."""
        if self._error is not None:
            raise self._error
        if self._given:
            return self._given[0]
        if "raised" in recorded:
            raise _remade(*recorded["raised"])
        if "text" in recorded:
            return recorded["text"]
        try:
            return encoding.decode(recorded["value"], recorded.get("types", ()), _find)
        except BadInput:  # a class that the code of now does not have
            return recorded["value"]


def _remade(name: str, text: str, args: list[Any], types: list[Any]) -> Exception:
    """The error as it was raised, where its class is known and takes its own arguments."""
    of = _loaded(name)
    if isinstance(of, type) and issubclass(of, Exception):
        try:
            error = of(*encoding.decode(args, types, _find))
        except Exception:  # a class that is made of other things than it keeps
            error = None
        if isinstance(error, Exception) and str(error) == text:
            return error
    return ToolRaised(text)


def _name_of(of: type) -> str:
    """By module and name."""
    return f"{of.__module__}:{of.__qualname__}"


def _find(name: str) -> type | None:
    found = _loaded(name)
    return found if encoding.is_class_of_values(found) else None


def _loaded(name: str) -> Any:
    """What stands under a name of `_name_of` in a module that is imported already: nothing is imported for a record."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
