"""An attribute that is made when it is first read."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class made_once(Generic[T]):
    """As `functools.cached_property`, for objects of which thousands are kept.

    It sets the attribute instead of writing to the object's ``__dict__``: an object whose dictionary was once asked
    for has one of its own, with names that it does not share with others of its class, 1,300 bytes of them.
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
    """Have these attributes, which objects of a class get after they are made, be among the names that they share.

    CPython closes the list when some objects were made that had them not.
    """

    def share(kind: type[T]) -> type[T]:
        first = object.__new__(kind)
        for name in names:
            setattr(first, name, None)
        return kind

    return share
