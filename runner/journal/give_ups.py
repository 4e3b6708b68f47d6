"""Steps that ended without an outcome because the code gave them up; replayed, they are given up in the same way.

The author's code may cancel a coroutine's step (the slower of two, ``asyncio.wait_for``), and a call's client may time
out. Made again, such a step could be the faster one, and the code would do other things than before. So a record says
how it ended: a call that timed out raises its client's error at once, and a step that was cancelled waits until it is
cancelled again, and is not made. If the task itself is stopped, nothing is given up: what was under way is made again.

The record adds nothing to the account: the step was begun and has no outcome, so it is in doubt, once. A record is not
replayed if an attempt at the task ended because of it, so that another attempt can do better.
"""

import json
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

_SAID = " gave up"
_NAME = re.compile(rf"((?!=|.*/=).*#[\d:]+(?:~\d+)?){_SAID}(\d*)", re.DOTALL)  # of no marker, nor of a step's files
_ENDED = "ended by "
_CANCELLATIONS = frozenset({("asyncio.exceptions", "CancelledError"), ("trio", "Cancelled")})


class GiveUp(NamedTuple):
    """How a step was given up.

    Attributes:
        name: of its record.
        at: how many seconds after its attempt began.
        error: the name of the class and the text of its client's timeout error; none if the code cancelled it. Of an
            error by which it was refused also its representation.
        in_body: whether a part of the answer had come.
        answer: that part, as an answer is recorded, if it was streamed; or the answer by which it was refused.
        refused: it was refused, or could not connect, as the error says: see `runner.journal.refusals`.
        answered: the code cancelled it as its result came: that is recorded, too, for code that does not do so again.
    """

    name: str
    at: float
    error: tuple[str, ...] | None = None
    in_body: bool = False
    answer: Mapping[str, Any] | None = None
    refused: bool = False
    answered: bool = False

    def text(self) -> str:
        """Return its record."""
        return json.dumps(self._asdict() | {"name": None})


def given_up(recorded: Mapping[str, str]) -> dict[str, GiveUp]:
    """Return how steps were given up, by the names under which their results would be recorded."""
    names = [name for name in recorded if _SAID in name]
    ended = {one for name in names if name.startswith(f"={_ENDED}") for one in json.loads(recorded[name])}
    found = dict[str, GiveUp]()
    latest = dict[str, int]()
    for name in names:
        parts = None if name in ended else _NAME.fullmatch(name)
        if parts is not None and (number := int(parts[2] or 1)) > latest.get(parts[1], 0):
            kept = json.loads(recorded[name]) | {"name": name}
            found[parts[1]] = GiveUp(**{field: kept[field] for field in GiveUp._fields if field in kept})
            latest[parts[1]] = number
    return found


def name_for(step: str, recorded: Mapping[str, str]) -> str:
    """Return the name for the record that this step was given up: another one than those of earlier attempts."""
    name, again = f"{step}{_SAID}", 1
    while name in recorded:
        again += 1
        name = f"{step}{_SAID}{again}"
    return name


def ended_by(names: Iterable[str]) -> str:
    """Return the name of the marker that an attempt ended by these records, which are not replayed."""
    return _ENDED + min(names)


def causes_of(error: BaseException) -> Iterable[BaseException]:
    """Return an error and the errors that caused it."""
    seen: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen[id(one)] = one
            left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return seen.values()


def reference_to(error: BaseException) -> Callable[[], BaseException | None]:
    """Return what gives the error while anything else refers to it, with all that is in the frames of its traceback."""
    try:
        return weakref.ref(error)
    except TypeError:  # one of Python's own classes
        return lambda: error


def is_cancellation(error: BaseException) -> bool:
    """Whether this is how asyncio or trio cancels a coroutine."""
    return (type(error).__module__, type(error).__name__) in _CANCELLATIONS


def is_timeout(error: BaseException) -> bool:
    """Whether a client's error says that its time is up."""
    return isinstance(error, Exception) and any("Timeout" in kind.__name__ for kind in type(error).__mro__)


def error_like(base: type[Exception], name: str, text: str, shown: str) -> Exception | None:
    """Return an error with this text and representation, of the class with this name below ``base``, or None."""
    kinds = [base]
    for kind in kinds:
        if kind.__name__ == name:
            about = {"__init__": Exception.__init__, "__str__": Exception.__str__, "__repr__": lambda _: shown}
            made: Exception = type(name, (kind,), about | {"__module__": kind.__module__})(text)
            return made
        kinds += kind.__subclasses__()
    return None


def timeout_error(base: type[Exception], name: str, text: str, *leading: object) -> Exception:
    """Return an error with this text, of the class with this name among the subclasses of ``base``, or of that.

    Some put the first of the ``leading`` arguments before their text, or None.
    """
    kinds = [base]
    for kind in kinds:
        if kind.__name__ == name:
            base = kind
            break
        kinds += kind.__subclasses__()
    if leading:
        if text.startswith("None: "):
            leading = (None,) * len(leading)
        return base(*leading, text.removeprefix(f"{leading[0]}: "))
    return base(text) if text or base is not TimeoutError else base()
