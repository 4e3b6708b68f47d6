"""Records what a task reads while it runs: a fork runs the tasks again that read what it changes. Pure."""

import difflib
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What one task has read: outputs beyond its declared context, and inputs, by name; ``*`` means all.

    An output that a person ``edited`` read nothing, not even the declared context. ``files``: the task left files.
    """

    tasks: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    edited: bool = False
    files: bool = False

    def to_json(self) -> str:
        """Return the form in the commit order: as short as possible, mostly empty."""
        if not (self.tasks or self.inputs or self.files):
            return ""
        parts: list[Any] = [*(_short(names) for names in (self.tasks, self.inputs)), int(self.files)]
        while parts and not parts[-1]:
            parts.pop()
        return "".join(f",{json.dumps(part, ensure_ascii=False)}" for part in parts)

    @classmethod
    def from_json(cls, parts: list[Any]) -> "ReadSet":
        """The inverse, from the decoded parts."""
        if not parts:
            return NOTHING
        return cls(frozenset(parts[0]), frozenset(parts[1] if len(parts) > 1 else ()), files=len(parts) > 2)


NOTHING = ReadSet()
EDITED = ReadSet(edited=True)
UNKNOWN = ReadSet(frozenset(EVERYTHING), frozenset(EVERYTHING))
"""Of a task whose reads were not tracked: it may have used everything."""


def _short(names: frozenset[str]) -> str | list[str]:
    return EVERYTHING if EVERYTHING in names else sorted(names)


class ReadTracker:
    """Records the reads of a task in flight. Until reads are tracked, everything counts as read."""

    def __init__(self) -> None:
        # Not sets: an empty one takes three times as much memory, and many tasks wait at a time.
        self._tasks: dict[str, None] = {}
        self._inputs: dict[str, None] = {}
        self._watched = False
        self._handed_out = 0
        self._looked_at = 0

    def watch(self, inputs: Mapping[str, Any]) -> "InputsInUse":
        """Track reads from here on; return the inputs in a form that records reads."""
        self._watched = True
        return InputsInUse(inputs, self)

    def hand_out(self) -> None:
        """The inputs were passed on as a whole. If none of them is looked up afterwards, all count as read."""
        self._handed_out += 1

    def task(self, name: str) -> None:
        """The output of a task was read."""
        self._tasks[name] = None

    def input(self, name: str) -> None:
        """An input occurs in a text of the task."""
        self._inputs[name] = None

    def look(self, name: str) -> None:
        """An input was looked up, whether it exists or not."""
        self._inputs[name] = None
        self._looked_at += 1

    def noted(self) -> list[list[str]]:
        """Return the reads so far as JSON: the tasks, and the inputs."""
        return [
            sorted(self._tasks),
            sorted({*self._inputs, *((EVERYTHING,) if self._handed_out > self._looked_at else ())}),
        ]

    def recall(self, noted: Sequence[Iterable[str]]) -> None:
        """Add the reads of a part that is replayed."""
        self._tasks.update(dict.fromkeys(noted[0]))
        self._inputs.update(dict.fromkeys(noted[1]))

    def found(self, declared: tuple[str, ...], earlier: Callable[[], int]) -> ReadSet:
        """Return the reads beyond the ``declared`` context; ``earlier`` gives the number of tasks, if it matters."""
        if not self._watched:
            return UNKNOWN
        tasks = self._tasks.keys() - declared
        inputs = {EVERYTHING} if self._handed_out > self._looked_at or EVERYTHING in self._inputs else self._inputs
        # All of them by name would make the order of commits grow with the square of the run.
        whole = EVERYTHING in tasks or (len(tasks) > 1 and len(self._tasks.keys() | declared) >= earlier())
        return ReadSet(frozenset(EVERYTHING) if whole else frozenset(tasks), frozenset(inputs))


class InputsInUse(dict[str, Any]):
    """A dict of inputs that records which of them are read."""

    __slots__ = ("_uses",)

    def __init__(self, inputs: Mapping[str, Any], uses: ReadTracker) -> None:
        super().__init__(inputs)
        self._uses = uses

    def __getitem__(self, name: str) -> Any:
        self._uses.look(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> NoReturn:
        there = list(dict.keys(self))  # not a read
        near = difflib.get_close_matches(str(name), there, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(there) or 'none'}"
        raise KeyError(f"the run has no input {name!r}; {hint}")

    def __contains__(self, name: object) -> bool:
        self._uses.look(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As a dict does."""
        self._uses.look(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """As a dict does."""
        self._uses.look(name)
        return super().pop(name, *default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """As a dict does."""
        self._uses.look(name)
        return super().setdefault(name, default)

    __hash__ = None


def _reading_all(name: str) -> Callable[..., Any]:
    """A method of dict after which every input counts as read."""
    method: Callable[..., Any] = getattr(dict, name)

    @functools.wraps(method)
    def read(inputs: InputsInUse, *given: Any) -> Any:
        inputs._uses.look(EVERYTHING)
        return method(inputs, *given)

    return read


for _name in (
    *("__iter__", "__reversed__", "__len__", "__eq__", "__ne__", "__repr__", "__or__", "__ror__"),
    *("keys", "values", "items", "copy", "popitem"),
):
    setattr(InputsInUse, _name, _reading_all(_name))
