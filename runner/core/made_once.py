"""An attribute that is made when it is first read."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class made_once(Generic[T]):
    """As `functools.cached_property`, for objects of which thousands are kept.

    It does not touch ``__dict__``, which would give each object a key table of its own.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, of: None, kind: type) -> "made_once[T]": ...
    @overload
    def __get__(self, of: object, kind: type) -> T: ...
    def __get__(self, of: object | None, kind: type) -> "made_once[T] | T":
        if of is None:
            return self
        made = self._make(of)
        setattr(of, self._name, made)
        return made


def early_names(*names: str) -> Callable[[type[T]], type[T]]:
    """Have later attributes share the class's key table: CPython closes it once some objects are made without them."""

    def share(kind: type[T]) -> type[T]:
        first = object.__new__(kind)
        for name in names:
            setattr(first, name, None)
        return kind

    return share
