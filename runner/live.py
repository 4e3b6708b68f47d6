"""The crews, agents and flow classes that are alive in this process, so that a restored one finds its code.

Held weakly: being here keeps nothing alive.
"""

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

_counter = itertools.count()
_living: dict[int, weakref.ref[Any]] = {}


def _gone() -> None:
    return None


AS_DATA = {"from_checkpoint": True}
"""The validation context of what is made from a checkpoint's data: it has no code for others to take."""


def is_data(context: Any) -> bool:
    """Whether this is that context."""
    return isinstance(context, dict) and bool(context.get("from_checkpoint"))


def remember(thing: object, context: Any = None) -> None:
    """It exists. Needs no hash of it, and no equality."""
    if not is_data(context):
        number = next(_counter)
        _living[number] = weakref.ref(thing, lambda _: _living.pop(number, None))


def newest_first(kind: type) -> Iterator[Any]:
    """Every living instance of ``kind`` (or subclass of it, of those that are classes), the newest first."""
    numbers = list(_living)  # a copy, in order of birth: others come and go meanwhile
    for number in reversed(numbers):
        reference = _living.get(number, _gone)
        thing = reference()
        if thing is not None and (isinstance(thing, kind) or (isinstance(thing, type) and issubclass(thing, kind))):
            yield thing
