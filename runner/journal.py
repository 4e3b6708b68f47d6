"""Durable steps inside one task: replay what is recorded, else do it and record it.

A step is known by its name, its arguments and its occurrence: the second call with the same name and arguments is
another step. So steps may be done in any order, and from several threads. Arguments that are not JSON count by their
type only.
"""

import contextlib
import dataclasses
import hashlib
import inspect
import json
import re
import threading
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from runner import crashpoints
from runner.errors import Asked
from runner.gate import Gate

RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What code raises by itself, and not because it is stopped from outside."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Recorder(Protocol):
    """Where the steps of one task go."""

    def begin_step(self) -> None:
        """A step is about to be done."""

    def record_step(self, step: str, value: str, *, replayed: int) -> None:
        """It was done: keep its result."""

    def drop_step(self) -> None:
        """It was begun and raised."""

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person and go on when they have answered."""

    def place(self, step: str) -> str:
        """Where the answer to a question belongs: the step's name in the journal of the outermost task."""


class Watch(Protocol):
    """Told of one step that is really done; of a replayed one it hears nothing."""

    def began(self) -> None:
        """It is about to be done."""

    def ended(self, value: Any) -> None:
        """It was done and is recorded; ``value`` is what it returned."""

    def failed(self, error: BaseException) -> None:
        """It raised, and nothing is recorded."""


class Nest:
    """What a kickoff inside of a task records in the task's journal, under names of its own."""

    def __init__(self, journal: "Journal", prefix: str) -> None:
        self._journal = journal
        self._prefix = prefix

    @property
    def name(self) -> str:
        """What it is called there: the same in each attempt."""
        return self._prefix.rstrip("/")

    def recorded(self, under: str = "") -> dict[str, str]:
        """What is recorded, by name; of one part, without its prefix."""
        return self._journal.recorded_under(self._prefix + under)

    def record(self, name: str, value: str) -> None:
        """Record a step that was done."""
        self._journal.record_as(self._prefix + name, value)

    def begin(self) -> None:
        """A step is about to be done."""
        self._journal.begin()

    def drop(self) -> None:
        """It was begun and raised."""
        self._journal.drop()

    @property
    def can_wait(self) -> bool:
        """Whether the task around it can stop for a person."""
        return self._journal.can_wait

    def place(self, name: str) -> str:
        """Where the answer to a question that is asked in here belongs, in the journal of the outermost task."""
        return self._journal.place(self._prefix + name)


_enclosing: ContextVar["Journal | None"] = ContextVar("runner_enclosing_journal", default=None)


@contextlib.contextmanager
def inside_of(journal: "Journal") -> Iterator[None]:
    """Kickoffs in this context are part of the task whose journal this is."""
    token = _enclosing.set(journal)
    try:
        yield
    finally:
        _enclosing.reset(token)


def nest(name: str, *about: Any) -> Nest | None:
    """Where a kickoff that begins here records what it does, if it is inside of a task. The same kickoff finds the same
    records when the task begins anew."""
    journal = _enclosing.get()
    return journal.nest(name, *about) if journal is not None else None


class Journal:
    """The steps of one task in flight."""

    def __init__(self, recorded: Mapping[str, str], recorder: Recorder, gate: Gate) -> None:
        self._recorded = dict(recorded)
        self._recorder = recorder
        self._gate = gate
        self._occurrences: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._replayed = 0

    @property
    def gate(self) -> Gate:
        """Where the task may be stopped."""
        return self._gate

    @property
    def can_wait(self) -> bool:
        """Whether the task can stop for a person and go on when they have answered."""
        return self._recorder.can_wait

    def place(self, step: str) -> str:
        """A step's name in the journal of the outermost task."""
        return self._recorder.place(step)

    def position(self) -> dict[str, int]:
        """How often each step was done so far: what a task that skips what it did has to `go_to`."""
        with self._lock:
            return dict(self._occurrences)

    def go_to(self, position: Mapping[str, int]) -> None:
        """What comes next is counted from a `position` on."""
        with self._lock:
            self._occurrences = Counter(position)

    def take_replayed(self) -> int:
        """How many steps were replayed since this was last asked."""
        count, self._replayed = self._replayed, 0
        return count

    def step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        watch: Watch | None = None,
        *,
        kind: str = "step",  # noqa: ARG002 - where it counts
        model: str = "",  # noqa: ARG002
    ) -> Any:
        """The result of ``fn(*args, **kwargs)``, done at most once; a coroutine of it if ``fn`` is async."""
        with self._lock:
            identity = _identity(name, args, kwargs)
            self._occurrences[identity] += 1
            key = f"{identity}#{self._occurrences[identity]}"
            recorded = self._recorded.get(key)
            if recorded is not None:
                self._replayed += 1
        result_type = _result_type(fn)
        if inspect.iscoroutinefunction(fn):
            return self._astep(name, key, recorded, result_type, fn, args, kwargs, watch)
        if recorded is not None:
            self._gate.check()
            return _load(recorded, result_type)
        with self._gate.call():
            self._begin(watch)
            try:
                value = fn(*args, **kwargs)
            except BaseException as error:
                self._drop(watch, error)
                raise
            text = self._record(name, key, value, result_type, watch)
        self._gate.check()
        return _load(text, result_type)

    async def _astep(
        self,
        name: str,
        key: str,
        recorded: str | None,
        result_type: Any,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        watch: Watch | None,
    ) -> Any:
        if recorded is not None:
            self._gate.check()
            return _load(recorded, result_type)
        with self._gate.call():
            self._begin(watch)
            try:
                value = await fn(*args, **kwargs)
            except BaseException as error:
                self._drop(watch, error)
                raise
            text = self._record(name, key, value, result_type, watch)
        self._gate.check()
        return _load(text, result_type)

    def nest(self, name: str, *about: Any) -> Nest:
        """The records of a kickoff inside of this task, known as a step is: by its name, what it is about, and the
        occurrence."""
        with self._lock:
            identity = _identity(name, about, {})
            self._occurrences[identity] += 1
            return Nest(self, f"{identity}#{self._occurrences[identity]}/")

    def recorded_under(self, prefix: str) -> dict[str, str]:
        """What is recorded under names with this prefix, without it."""
        with self._lock:
            return {key.removeprefix(prefix): text for key, text in self._recorded.items() if key.startswith(prefix)}

    def record_as(self, key: str, text: str) -> None:
        """Record what somebody else did, under this very key."""
        with self._gate.write(), self._lock:
            self._recorder.record_step(key, text, replayed=self.take_replayed())
            self._recorded[key] = text

    def begin(self) -> None:
        """Somebody else is about to do a step."""
        with self._gate.write(), self._lock:
            self._recorder.begin_step()

    def drop(self) -> None:
        """What somebody else began raised."""
        with self._gate.write(), self._lock:
            self._recorder.drop_step()

    def kept(self, name: str) -> Any:
        """What `keep` kept under this name; None if there is nothing."""
        with self._lock:
            text = self._recorded.get(f"={name}")
        return None if text is None else json.loads(text)

    def keep(self, name: str, value: Any) -> None:
        """Record a JSON value that is no step's result: what was found out half-way, and is not to be done again."""
        with self._gate.call():
            self._begin(None)
            self._record(name, f"={name}", value, None, None)

    def step_of(self, question: str) -> str:
        """The step where the answer to a question belongs that was asked last."""
        with self._lock:
            identity = _identity("?", (question,), {})
            return f"{identity}#{self._occurrences[identity]}"

    @staticmethod
    def text(value: Any) -> str:
        """A plain value as it stands in a journal."""
        return json.dumps(value)

    def answer(self, question: str, obtain: Callable[[str], str | None], about: Mapping[str, Any] | None = None) -> str:
        """What a person answered to a question: recorded once, however often the task begins anew.

        ``obtain`` is called with the step where the answer belongs. Raises `Asked` where it gives None: the task stops
        there, until somebody puts the answer into the journal. ``about`` is what whoever answers should know.
        """
        with self._lock:
            identity = _identity("?", (question,), {})
            self._occurrences[identity] += 1
            step = f"{identity}#{self._occurrences[identity]}"
            text = self._recorded.get(step)
        if text is not None:
            return str(json.loads(text))
        with self._gate.person():
            said = obtain(step)
        if said is None:
            raise Asked(self.place(step), question, about)
        with self._gate.call():
            self._begin(None)
            self._record("?", step, said, None, None)
        return said

    def _begin(self, watch: Watch | None) -> None:
        with self._gate.write():
            with self._lock:
                self._recorder.begin_step()
            if watch is not None:
                watch.began()
        crashpoints.reached("step begun, not done")

    def _drop(self, watch: Watch | None, error: BaseException) -> None:
        """A stop drops nothing from the store: whether the step was done is in doubt."""
        with self._gate.write():
            if isinstance(error, RAISED):
                with self._lock:
                    self._recorder.drop_step()
            if watch is not None:
                watch.failed(error)

    def _record(self, name: str, key: str, value: Any, result_type: Any, watch: Watch | None) -> str:
        crashpoints.reached("step done, not recorded")
        try:
            text = _dump(name, value, result_type)
        except TypeError as error:
            if watch is not None:
                watch.failed(error)
            raise
        with self._gate.write():
            with self._lock:
                self._recorder.record_step(key, text, replayed=self.take_replayed())
                self._recorded[key] = text
            if watch is not None:
                watch.ended(value)
        crashpoints.reached("step recorded, task not ended")
        return text


def _identity(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if not args and not kwargs:
        return name
    try:
        plain = json.dumps([_canonical(args), _canonical(kwargs)], sort_keys=True)
    except RecursionError:  # an argument that holds itself
        plain = json.dumps([[type(v).__qualname__ for v in args], {k: type(v).__qualname__ for k, v in kwargs.items()}])
    return f"{name}({hashlib.sha256(plain.encode()).hexdigest()[:16]})"


def _canonical(value: Any) -> Any:
    """The value as JSON that is the same in every process: sets in order, strange objects by their type."""
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


def _result_type(fn: Callable[..., Any]) -> Any:
    """The adapter of the function's return annotation, if it says more than plain JSON does."""
    found = getattr(fn, "__annotations__", {}).get("return")
    if found is None or found in (str, int, float, bool, Any, "str", "int", "float", "bool", "Any"):
        return None
    try:
        return TypeAdapter(typing.get_type_hints(fn)["return"])
    except Exception:  # an annotation pydantic cannot use says nothing about JSON either
        return None


def _dump(name: str, value: Any, result_type: Any) -> str:
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"step {name!r} returned a coroutine: give the async function itself, and await the step")
    try:
        if result_type is not None:
            data = result_type.dump_python(value, mode="json", warnings=False)
        else:
            data = to_jsonable_python(value, bytes_mode="base64")
        text = json.dumps(data, ensure_ascii=False)
    except (PydanticSerializationError, TypeError, ValueError):
        raise TypeError(
            f"step {name!r} returned {_kind(value)}, which is not JSON: "
            "return text, numbers, lists or dicts, or annotate the function with the model it returns"
        ) from None
    # Half a surrogate pair (a file name, a model's slip) is no UTF-8, but JSON has a spelling for it.
    return text if text.isascii() or not _SURROGATE.search(text) else json.dumps(data)


def _kind(value: Any) -> str:
    """The name of the value's type with its article."""
    name = type(value).__qualname__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _load(text: str, result_type: Any) -> Any:
    """Both a first call and a replay give the value as read back, so code sees the same thing each time."""
    value = json.loads(text)
    if result_type is None:
        return value
    try:
        return result_type.validate_python(value, strict=False)
    except ValidationError:  # an annotation that the function does not keep to says nothing
        return value
