"""The classes that a task's code can name; stored values are restored only to these."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from runner.core.encoding import is_class_of_values


class Names:
    """The classes that these functions can name: in their files, their imports and their annotations. Found lazily."""

    def __init__(self, functions: Iterable[Callable[..., Any]], classes: Iterable[type] = ()) -> None:
        self._functions, self._classes = functions, classes

    @functools.cached_property
    def _by_name(self) -> dict[str, type]:
        found: dict[str, type] = {}
        for of in self._classes:
            for one in _within(of, set()):
                found.setdefault(one.__qualname__, one)
        for function in self._functions:
            for name, of in _of(function):
                found.setdefault(name, of)
        return found

    def find(self, name: str) -> type | None:
        """Return the class with this name."""
        return self._by_name.get(name)

    def name_of(self, of: type) -> str | None:
        """Return the name under which a class is found; None if there is none."""
        if self._by_name.get(of.__qualname__) is of:
            return of.__qualname__
        return next((name for name, one in self._by_name.items() if one is of), None)


def _of(function: Callable[..., Any]) -> Iterator[tuple[str, type]]:
    plain = _plain(function)
    try:
        returned = typing.get_type_hints(plain).get("return")
    except Exception:  # an annotation that does not resolve names nothing
        returned = None
    for of in _within(returned, set()):
        yield of.__qualname__, of
    names = {**getattr(plain, "__globals__", {}), **_enclosed(plain)}
    for name, value in names.items():
        yield from _named(name, value)
    for name, value in names.items():
        for inner, one in vars(value).copy().items() if isinstance(value, ModuleType) else ():
            yield from _named(f"{name}.{inner}", one)


def _plain(function: Any) -> Any:
    """The underlying function of a method, a partial, or a callable object."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif not inspect.isroutine(function) and not isinstance(function, type) and callable(function):
            function = type(function).__call__
        else:
            return inspect.unwrap(function)


def _enclosed(function: Any) -> dict[str, Any]:
    """The names from enclosing functions that a function uses."""
    code = getattr(function, "__code__", None)
    found = {}
    for name, cell in zip(getattr(code, "co_freevars", ()), getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it is not set yet
            continue
    return found


def _named(name: str, value: Any) -> Iterator[tuple[str, type]]:
    if isinstance(value, type):
        if is_class_of_values(value):
            yield name, value
        for inner, one in vars(value).copy().items():
            if (
                isinstance(one, type)
                and is_class_of_values(one)
                and one.__qualname__ == f"{value.__qualname__}.{inner}"
            ):
                yield one.__qualname__, one


def _within(annotation: Any, seen: set[Any]) -> Iterator[type]:
    """The classes in an annotation, and in the fields of those."""
    if isinstance(annotation, type) and is_class_of_values(annotation) and annotation not in seen:
        seen.add(annotation)
        yield annotation
        for inner in _fields(annotation):
            yield from _within(inner, seen)
    for inner in typing.get_args(annotation):
        yield from _within(inner, seen)


def _fields(of: type) -> list[Any]:
    if issubclass(of, BaseModel):
        return [field.annotation for field in of.model_fields.values()]
    try:
        return list(typing.get_type_hints(of).values()) if dataclasses.is_dataclass(of) or issubclass(of, tuple) else []
    except Exception:  # one that does not resolve
        return []
