"""Steps: their identities, their records, those in progress, and the progress of their task.

The record of a step, with its result and the files it wrote, is JSON, the same in every process. The task's progress is
counted here alone: the store gets it with the next record, and a task that skips completed steps begins from it.
"""

import dataclasses
import inspect
import json
import re
import threading
import types
import typing
from binascii import crc32
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from runner.core.ledger import NO_TOKENS, STEP, AccountKey, Counters, Usage, usage_in
from runner.core.plain_text import of_class

if TYPE_CHECKING:
    from runner.journal.give_ups import GiveUp

_sorted = json.JSONEncoder(sort_keys=True).encode  # json.dumps would make an encoder for each step
_encoded = json.JSONEncoder(ensure_ascii=False).encode
_SURROGATE = re.compile("[\ud800-\udfff]")
AS_WRITTEN = frozenset({str, int, bool, type(None)})  #: types of values that come out of JSON as they went in
_FILES = "=files"  #: how the names of records begin that hold files


def identity(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the identity of a step: its name and a hash of its arguments.

    Raises `ValueError` if the name is not UTF-8: a step whose record could not be written never begins.
    """
    if not name.isascii() and _SURROGATE.search(name):
        raise ValueError(f"the step name {name!r} contains half of a surrogate pair, which is not valid UTF-8")
    if not kwargs:
        if not args:
            return name
        plain = ""
        for one in args:
            if type(one) is int:
                plain += f", {one}"
            elif type(one) is str and one.isascii():
                plain += f", {encode_basestring_ascii(one)}"
            else:
                break
        else:  # numbers and plain texts, as most arguments are
            return f"{name}({sha256(f'[[{plain[2:]}], {{}}]'.encode()).hexdigest()[:16]})"
    try:
        plain = _sorted([_canonical(args), _canonical(kwargs)])
    except RecursionError:  # an argument that holds itself
        plain = json.dumps([[type(v).__qualname__ for v in args], {k: type(v).__qualname__ for k, v in kwargs.items()}])
    return f"{name}({sha256(plain.encode()).hexdigest()[:16]})"


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether ``fn`` is an async function. For a plain function this is a look at its flags."""
    if type(fn) is types.FunctionType and not fn.__dict__:
        return bool(fn.__code__.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(fn)


def _canonical(value: Any) -> Any:
    """Return the value as JSON that is the same in every process: sets sorted, unknown objects as their type."""
    if type(value) is int or (type(value) is str and value.isascii()):
        return value
    if isinstance(value, Mapping):
        return {str(k): _canonical(v) for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_canonical(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    if isinstance(value, list | tuple):
        return [_canonical(v) for v in value]
    if isinstance(value, BaseModel):
        fields = dict(value)
        if hasattr(value, "entity_type"):  # a crew, a task, an agent: each process that makes it gives it another id
            fields = {k: v for k, v in fields.items() if k not in ("id", "output") and not k.startswith("checkpoint")}
        return _canonical(fields)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _canonical(getattr(value, f.name, None)) for f in dataclasses.fields(value)}
    if isinstance(value, Iterator):  # looking into it would use it up
        return f"<{type(value).__qualname__}>"
    try:
        return to_jsonable_python(value, fallback=lambda other: f"<{type(other).__qualname__}>", bytes_mode="base64")
    except (PydanticSerializationError, ValueError):
        return f"<{type(value).__qualname__}>"


def type_of_result(fn: Callable[..., Any]) -> Any:
    """Return the type adapter of the function's return annotation, or None if plain JSON suffices."""
    try:
        found = getattr(fn, "__annotations__", {}).get("return")  # from Python 3.14 on it is resolved here
        if found is None or found in (str, int, float, bool, Any, "str", "int", "float", "bool", "Any"):
            return None
        return TypeAdapter(typing.get_type_hints(fn)["return"])
    except Exception:  # one that does not resolve, or that pydantic cannot use, says nothing about JSON either
        return None


def dump(name: str, value: Any, result_type: Any) -> str:
    """Return the value as JSON text. Raises `TypeError` if it cannot be JSON."""
    if type(value) is types.CoroutineType:
        value.close()
        raise TypeError(f"step {name!r} returned a coroutine: give the async function itself, and await the step")
    if result_type is None:
        try:  # most values are one of these
            if type(value) is str:
                return to_json(value).decode()
            if type(value) is int:
                return str(value)
        except (PydanticSerializationError, ValueError):  # half a surrogate pair, or more digits than Python reads
            pass
    try:
        if result_type is not None:
            data = result_type.dump_python(value, mode="json", warnings=False)
        else:
            data = to_jsonable_python(value, bytes_mode="base64")
        text = _encoded(data)
    except (PydanticSerializationError, TypeError, ValueError):
        raise TypeError(
            f"step {name!r} returned {of_class(value)}, which is not JSON: "
            "return text, numbers, lists or dicts, or annotate the function with the model it returns"
        ) from None
    # Half a surrogate pair (a file name, a model's slip) is no UTF-8, but JSON has a spelling for it.
    return text if text.isascii() or not _SURROGATE.search(text) else json.dumps(data)


def load_own(value: Any, text: str, result_type: Any) -> Any:
    """`load` a value that was just dumped; most such values need no parsing."""
    return value if type(value) in AS_WRITTEN and result_type is None else load(text, result_type)


def load(text: str, result_type: Any) -> Any:
    """Return the value from its JSON text. A first call does this too, so code gets the same value on replay."""
    value = json.loads(text)
    if result_type is None:
        return value
    try:
        return result_type.validate_python(value, strict=False)
    except ValidationError:  # an annotation that the function does not keep to says nothing
        return value


class Kept(Protocol):
    """The files of a task that are recorded with its steps."""

    made: bool
    """Whether there may be any."""

    def mark(self) -> int:
        """Return this point in time, for `changed`."""

    @property
    def noticed(self) -> int:
        """The point in time of the last look at them."""

    def changed(self, since: int = 0) -> Mapping[str, Any]:
        """Return the files that were written, changed or removed since then, as JSON."""

    def lay(self, files: Mapping[str, Any]) -> None:
        """Write, change and remove these files again."""


class StepFiles:
    """A task's files: what a step changed is recorded with it, and there again where it is replayed.

    ``recorded`` is its journal, ``record`` adds to it, ``passed`` gets the records it replays. ``some``: files of steps
    are recorded.
    """

    def __init__(
        self,
        files: Kept,
        recorded: Mapping[str, str],
        record: Callable[[str, str], None],
        passed: Callable[[str], None],
    ) -> None:
        self.kept = files
        self._recorded = recorded
        self._record = record
        self._passed = passed
        self._records = 0
        self._noticed = 0
        self.some = bool(recorded) and have_files(recorded)

    @property
    def idle(self) -> bool:
        """Whether no step has files to record."""
        return not self.kept.made and not self.some

    def mark(self) -> int:
        """This point in time, when a step begins.

        What the task's code wrote before is not the step's: the code that replays it writes that itself, and may have
        the file open.
        """
        return self.kept.mark()

    def keep(self, step: str, since: int | None = None) -> None:
        """Record the files that a step changed, before the step itself is recorded, so that a replay finds all of them.

        If the start of the step is unknown, these are all changes that were not recorded before.
        """
        changed = self.kept.changed(self._noticed if since is None else since)
        if since is None or since <= self._noticed:
            self._noticed = self.kept.noticed
        before = self._names(step)  # by attempts that ended before they recorded the step: they do not count
        if changed or before:
            self._records += 1
            self.some = True
            self._record(_files_of(step, len(before)), json.dumps([self._records, changed], ensure_ascii=False))

    def lay(self, steps: Iterable[str]) -> None:
        """Restore the files as they were after these steps."""
        names = [found for step in steps if (found := self._names(step))]
        for name in (name for found in names for name in found):
            self._passed(name)
        for number, name in sorted((json.loads(self._recorded[found[-1]])[0], found[-1]) for found in names):
            self._records = max(self._records, number)
            self.kept.lay(json.loads(self._recorded[name])[1])

    def _names(self, step: str) -> list[str]:
        """Return the names under which files of a step are recorded, oldest first."""
        found: list[str] = []
        while (name := _files_of(step, len(found))) in self._recorded:
            found.append(name)
        return found


def have_files(recorded: Iterable[str]) -> bool:
    """Whether files of steps are among these records."""
    return any(name.startswith(_FILES) for name in recorded)


def _files_of(step: str, before: int) -> str:
    return f"{_FILES}{before or ''} {step}"


class NoFiles:
    """Replaces `StepFiles` for a task that has no files to keep, as most."""

    idle = True
    some = made = False

    def __init__(self) -> None:
        self.kept = self  # there are none; an attribute, as each step asks for it twice

    def mark(self) -> int:
        """Any point in time."""
        return 0

    def keep(self, step: str, since: int | None = None) -> None:
        """Nothing to record."""

    def lay(self, steps: Iterable[str]) -> None:
        """Nothing to restore."""


NO_FILES = NoFiles()


# -- the steps that are being done, and how far the task is


class Performing(Protocol):
    """A task, or a part of one, that does steps."""

    doing: "Doing"


class Ends(Protocol):
    """What steps end in: a task, or the step around them."""

    last_ended: str
    """The key of the one that ended last; "" for none."""


_DIGITS = str.maketrans({f"{digit:x}": " \t\n\r"[digit >> 2] + " \t\n\r"[digit & 3] for digit in range(16)})


def spelled(key: str) -> str:
    """Return a hash of a step's key as white space."""
    return f"{crc32(key.encode()):08x}".translate(_DIGITS)


class Frame:
    """A step in progress. ``entry`` is its kind in the account; None once inner steps count instead.

    It is recorded under its key, unless the record there cannot be replayed. ``ends_in``: where the order of ends is
    kept, the frame around it or its journal; ``before``: what had ended there last as it began; ``beside``: all that
    may count as ended while it was in progress, None for whatever did. ``reader``: the coroutine that reads it as it
    comes. ``gave_up``: how it was given up, if it is to be so again.
    """

    __slots__ = (
        *("before", "beside", "ends_in", "entry", "gave_up", "journal"),
        *("key", "last_ended", "outer", "reader", "recorded_as"),
    )

    def __init__(self, journal: Performing, key: str, entry: AccountKey | None, outer: "Frame | None") -> None:
        self.journal, self.key, self.entry, self.outer = journal, key, entry, outer
        self.recorded_as, self.last_ended, self.before = key, "", ""
        self.ends_in: Ends | None = None
        self.beside: Collection[str] | None = None
        self.reader: object = None
        self.gave_up: GiveUp | None = None

    def end(self, text: str) -> str:
        """It ends now: return its record, which says after which other one that is (see `runner.journal.end_order`)."""
        ends_in = self.ends_in
        if ends_in is not None:
            last, ends_in.last_ended = ends_in.last_ended, self.key
            if last is not self.before and (self.beside is None or last in self.beside):
                return text + spelled(last)
        return text

    def find(self, records: Mapping[str, str], usable: Callable[[str, str], bool]) -> str | None:
        """Return its record if it can be replayed. ``usable`` decides that from a record's name and text."""
        recorded = records.get(self.key)
        again = 1
        while recorded is not None and not usable(self.recorded_as, recorded):
            again += 1
            self.recorded_as = f"{self.key}~{again}"
            recorded = records.get(self.recorded_as)
        return recorded


current_step: ContextVar[Frame | None] = ContextVar("runner_step", default=None)
supposed_step: ContextVar[Frame | None] = ContextVar("runner_supposed_step", default=None)
"""The current step where it is only a guess: in a thread that no step in progress began."""
_superseding = threading.Lock()  # the frames of nested journals are changed under one, of all tasks


def supersede(frame: Frame | None) -> list[AccountKey]:
    """Return the account entries of this step and the enclosing ones, which inner steps replace; tools keep theirs."""
    found = []
    with _superseding:
        while frame is not None:
            if frame.entry is not None and frame.entry.kind != "tool":
                found.append(frame.entry)
                frame.entry = None
            frame = frame.outer
    return found


class Doing:
    """The steps of a task that are in progress, in all threads."""

    def __init__(self) -> None:
        self.frames: dict[Frame, None] = {}  #: in the order in which they began

    def sole(self) -> Frame | None:
        """Return the innermost step, if it is unambiguous; else None."""
        doing = list(self.frames)
        inner = [one for one in doing if not any(other.outer is one for other in doing)]
        return inner[0] if len(inner) == 1 else None


_AROUND = re.compile(r"#\d+(?=/)")
"""What ends the name of a step in those of the steps inside of it."""


class JournalProgress:
    """The counts of one task in flight with these ``recorded`` steps. The journal's lock guards them.

    Attributes:
        replayed: what was replayed since `take_replayed`.
        own: how many of the author's own steps were recorded, beside those given by `give`.
    """

    __slots__ = ("_given", "_inside_of", "_passed", "_recorded", "own", "replayed")

    def __init__(self, recorded: Mapping[str, str]) -> None:
        self._recorded = recorded
        self.replayed, self._given = Counters(), Counters()
        self.own = 0
        self._passed: dict[str, None] = {}
        self._inside_of: Counter[str] | None = None

    def account(self) -> Counters:
        """Return all counts so far."""
        found = Counters()
        found.add(self._given)
        if self.own:
            found[STEP] += self.own
        found.add(self.replayed)
        return found

    def take_replayed(self) -> Counters:
        """Return the counts of replays since the last call."""
        count = self.replayed
        if count or count.passed:
            self.replayed = Counters()
            self._given.add(count)
        return count

    def replay(self, count: Counters) -> None:
        """Add to the counts of replays."""
        self.replayed.add(count)

    def replay_step(self, entry: AccountKey | None, inside: Iterable[str]) -> None:
        """Count a replayed step; if model calls were recorded ``inside`` it, those are counted instead."""
        calls = Counters()
        for name in inside:
            one = json.loads(self._recorded[name])
            calls.served(AccountKey("model", one["agent"], one["model"]), usage_in(one))
        self.replayed.add(calls or Counters([entry] if entry is not None else []))

    def serve(self, key: str, entry: AccountKey, usage: Usage) -> None:
        """Count a replayed call and mark its record as passed."""
        self.replayed.served(entry, usage)
        self.mark_passed(key)

    def give(self, entry: AccountKey | None, usage: Usage) -> None:
        """Count a completed step, if it has an entry."""
        if entry is not None:
            self._given[entry] += 1
            if usage is not NO_TOKENS:
                self._given.tokens[entry] += usage.prompt_tokens + usage.completion_tokens

    def skip(self, steps: Iterable[int], account: str) -> None:
        """So many of each step are behind it, and what came to the ``account`` with them."""
        self.replayed.add(Counters.read(account).beyond(self.account()))
        self.replayed.passed += sum(steps)

    def mark_passed(self, key: str) -> None:
        """A record is behind it, and with it those inside of that. How many there are so far is how far it is."""
        if self._inside_of is None:
            self._inside_of = Counter(one[: part.end()] for one in self._recorded for part in _AROUND.finditer(one))
        if key not in self._passed:
            self._passed[key] = None
            self.replayed.passed += 1 + self._inside_of[key]
