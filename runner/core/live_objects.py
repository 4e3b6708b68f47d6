"""A weak registry of this process's crews, agents and flow classes, in which a restored one finds its code."""

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

_counter = itertools.count()
_living: dict[int, weakref.ref[Any]] = {}
_ROOM = 256
_room = _ROOM


AS_DATA = {"from_checkpoint": True}
"""The validation context of what is made from a checkpoint's data: it has no code for others to take."""


def is_data(context: Any) -> bool:
    """Whether this is the context of an object restored from data."""
    return isinstance(context, dict) and bool(context.get("from_checkpoint"))


def remember(thing: object, context: Any = None) -> None:
    """Register an object. It needs neither hash nor equality."""
    global _room
    if is_data(context):
        return
    if len(_living) >= _room:
        # Swept now and then. A callback at each death could be where an exception meant for a task is lost.
        for number in [number for number, reference in list(_living.items()) if reference() is None]:
            _living.pop(number, None)
        _room = max(_ROOM, 2 * len(_living))
    _living[next(_counter)] = weakref.ref(thing)


def newest_first(kind: type) -> Iterator[Any]:
    """Iterate over the living instances of ``kind``, or its subclasses if it is a class of flows, newest first."""
    numbers = list(_living)  # a copy, in order of birth: others come and go meanwhile
    for number in reversed(numbers):
        reference = _living.get(number)
        thing = reference() if reference is not None else None
        if thing is not None and (isinstance(thing, kind) or (isinstance(thing, type) and issubclass(thing, kind))):
            yield thing
