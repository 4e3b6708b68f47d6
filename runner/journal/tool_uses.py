"""Makes each tool use a step of the task around it, whichever framework's agent makes it: recorded, and replayed.

A use is identified by the tool's name, its arguments and its occurrence, like any step. A result is recorded with its
type, so that the framework shows a model the same after a restart; errors are recorded, too.
"""

import contextlib
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from pydantic import BaseModel

from runner.core import encoding
from runner.core.errors import BadInput, DiskTrouble, RelativePath
from runner.core.idempotency import keyed, origin
from runner.core.plain_text import of_class
from runner.journal import context_state, tool_errors
from runner.journal.class_names import find_class, name_of
from runner.journal.current_journal import current_journal
from runner.journal.journal import Journal
from runner.journal.recorder import StepObserver
from runner.journal.steps import current_step
from runner.journal.tool_context import LentContext, TaskContexts
from runner.journal.tool_functions import is_call_of

T = TypeVar("T")
P = ParamSpec("P")


class Use(NamedTuple):
    """One use of a tool: its name, its arguments, the author's objects that it may change, and the function it calls.

    Arguments that are not JSON count by their type. Changes in ``lent`` objects are applied again when the use is
    replayed; a use whose changes cannot be recorded is made again. ``calls`` is the function that the framework
    calls for it, before any other code of the author's; None if that is not known. If that function is `durable`, it
    is counted together with the tool, under whatever name. One that consists of steps that are counted themselves, as
    those of another agent are, is not ``counted``.
    """

    name: str
    arguments: Any
    lent: tuple[Any, ...] = ()
    calls: Callable[..., Any] | None = None
    counted: bool = True


About = Callable[..., Use | tuple[str, Any] | None]
"""Gives the use, of what the function that makes it is called with; None: no step is made of this one."""

FUNCTION = "function"
"""What ``records_uses`` says of a function that its author decorated."""

_PLAIN = (str, int, float, bool, type(None), bytes, list, tuple, dict, set, frozenset, BaseModel)


def durable(fn: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that each call of it inside a task is a step: it happens once, even if its process dies.

    ``fn`` may be async. It fits under the decorators by which frameworks make tools of functions (``@tool``,
    ``@function_tool``): name, signature and docstring stay. Outside of a task it is called as it is. Arguments that are
    no values (a framework's context) count by their type. Raises what ``fn`` raises, on replay too, unless that ended
    the attempt. What it returns is text, JSON, dates, models, dataclasses and the like: else it is called again. A tool
    that a framework made already is returned as it is: each use of it is a step. Raises `TypeError` for other objects.
    """
    if is_durable(fn):
        return fn
    return cast("Callable[P, T]", recorded(fn, functools.partial(_about_function, fn)))


def is_durable(fn: Any) -> bool:
    """Whether calls of ``fn`` are steps: decorated, or a framework's tool. Raises `TypeError` for other objects."""
    if hasattr(fn, "records_uses"):
        return True
    if inspect.isroutine(fn) or isinstance(fn, functools.partial) or context_state.is_own(fn):
        return False
    made_by = type(fn).__module__.partition(".")[0]
    if made_by not in _frameworks():
        raise TypeError(
            f"it takes a function: apply it before the decorator that made {of_class(fn)} of it ({made_by})"
        )
    return True


@functools.cache
def _frameworks() -> frozenset[str]:
    """Return the packages whose tool uses are recorded."""
    points = [one for group in ("crew_runner.agents", "crew_runner.adapters") for one in entry_points(group=group)]
    return frozenset((*(one.name.partition(".")[0] for one in points), "autogen_core", "langchain_core", "runner"))


def is_in_tool(name: str) -> bool:
    """Whether a function of this name is about to be called for the use of a tool, which is a step already."""
    found, around = current_journal(), _around.get()
    return found is not None and around is not None and around.journal is found[0] and around.takes(name)


@contextlib.contextmanager
def with_key() -> Iterator[None]:
    """Make the key of the current step the idempotency key while this is open."""
    with keyed(_key()):
        yield


def record_uses(owner: Any, name: str, about: About, *, passing: tuple[type[BaseException], ...] = ()) -> None:
    """From here on each call by which a framework uses its tools is a step, in the tasks of this process.

    ``owner`` is the class that has the method ``name``, or the module that has the function; see `recorded` for the
    rest. Done once in a process, however often it is called; nothing is done where there is no such name.
    """
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, classmethod):
        setattr(owner, name, classmethod(recorded(found.__func__, about, passing=passing)))
    elif found is not None:
        setattr(owner, name, recorded(found, about, passing=passing))


def recorded(
    fn: Callable[..., Any],
    about: About,
    *,
    passing: tuple[type[BaseException], ...] = (),
    make: "Callable[..., ToolUse] | None" = None,
) -> Callable[..., Any]:
    """``fn``, each call of which is a step inside a task; ``fn`` itself where that was done, or if it is a generator.

    One that its author decorated is one step with the tool, whose ``about`` knows more. ``about`` is called with its
    arguments. What is ``passing`` is raised by it to say something else than that a tool failed, and is not recorded.
    ``make`` makes a `ToolUse` of each, where a framework needs more of one.
    """
    kind = "tool" if _decorated(about) is None else FUNCTION
    is_generator = inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)
    if is_generator or getattr(fn, "records_uses", None) in (kind, "tool"):
        return fn
    wrapped = functools.wraps(fn)(_recording(fn, functools.partial(_begun, about, passing, make or ToolUse)))
    wrapped.records_uses = kind  # type: ignore[attr-defined]  # a mark on a function
    return wrapped


def _recording(fn: Callable[..., Any], begun: "Callable[..., ToolUse | None]") -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        made = begun(args, kwargs)
        if made is None:
            return fn(*args, **kwargs)

        def once(*_: Any) -> Any:
            with made.being_made():
                try:
                    made.gave(fn(*args, **kwargs))
                except Exception as error:
                    made.raised(error)
            return made.record

        with contextlib.closing(made):
            return made.result(made.step(once))

    async def acall(*args: Any, **kwargs: Any) -> Any:
        made = begun(args, kwargs)
        if made is None:
            return await fn(*args, **kwargs)

        async def once(*_: Any) -> Any:
            with made.being_made():
                try:
                    made.gave(await fn(*args, **kwargs))
                except Exception as error:
                    made.raised(error)
            return made.record

        with contextlib.closing(made):
            return made.result(await made.step(once))

    return acall if inspect.iscoroutinefunction(fn) else call


def _begun(
    about: About, passing: tuple[type[BaseException], ...], make: "Callable[..., ToolUse]", args: Any, kwargs: Any
) -> "ToolUse | None":
    found = current_journal(imports=True)
    use = about(*args, **kwargs) if found is not None else None
    if found is None or use is None:
        return None
    fn, around = _decorated(about), _around.get()
    if fn is None or around is None or around.journal is not found[0]:
        return make(found[0], Use(*use), passing, is_function=fn is not None)
    if around.takes(use[0]):
        return None
    return make(found[0], Use(*use), passing, is_function=True, counted=not around.counts(fn))


def _decorated(about: About) -> Callable[..., Any] | None:
    """The function that its author decorated, if it is about one."""
    return about.args[0] if isinstance(about, functools.partial) and about.func is _about_function else None


def _about_function(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Use:
    name = getattr(fn, "__name__", type(fn).__name__)
    return Use(name, [[_known_by(one) for one in args], {key: _known_by(one) for key, one in kwargs.items()}])


def _known_by(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else f"<{type(value).__qualname__}>"


def _key() -> str:
    """Return the key of the current step, which is the same each time that the step is attempted."""
    frame, first = current_step.get(), origin()
    return f"{first}:{hashlib.sha256(frame.key.encode()).hexdigest()[:16]}" if frame is not None and first else ""


_around: ContextVar["ToolUse | None"] = ContextVar("runner_tool_use", default=None)


class _Observed:
    """What observes a use is told what the tool gave or raised, and not how that is recorded."""

    def __init__(self, use: "ToolUse", observer: StepObserver) -> None:
        self._use, self._observer = use, observer
        self.began, self.failed = observer.began, observer.failed

    def ended(self, _: Any) -> None:
        outcome = self._use.outcome
        if isinstance(outcome, Exception):
            self._observer.failed(outcome)
        else:
            self._observer.ended(outcome)


class ToolUse:
    """One tool use: it holds the tool's result if the tool was called, and reads it from the record otherwise."""

    def __init__(
        self,
        journal: Journal,
        use: Use,
        passing: tuple[type[BaseException], ...],
        *,
        is_function: bool,
        counted: bool = True,
    ) -> None:
        self.journal = self._journal = journal
        self._use, self._passing, self._counted = use, passing, counted and use.counted
        self._has_function = is_function
        self._contexts = TaskContexts.of(journal, name_of, find_class)
        self._lent: LentContext | None = None
        self._given: list[Any] = []
        self._error: Exception | None = None
        self._recorded_as = ""
        self.record: dict[str, Any] = {}

    def close(self) -> None:
        """It is over. What it changed is nothing that is known again, if it was not recorded."""
        if self._lent is not None:
            self._lent.abandon()

    def takes(self, name: str) -> bool:
        """Whether this is the use of the decorated function that is being called in it: the first one of its name."""
        takes = name == self._use.name and not self._has_function
        self._has_function = self._has_function or takes
        return takes

    def counts(self, fn: Callable[..., Any]) -> bool:
        """Whether the decorated function that is called in it is the one that its tool calls, and is counted with it.

        That is a step of its own all the same: what it gave is recorded before the framework makes more of it.
        """
        counts = not self._has_function and is_call_of(fn, self._use.calls)
        self._has_function = self._has_function or counts
        return counts

    def _known_by(self) -> tuple[Any, ...]:
        """What identifies it, beside its name and its occurrence."""
        return (self._use.arguments,)

    def step(self, once: Callable[..., Any]) -> Any:
        """Call the tool, or find its record. Returns a coroutine if the tool is called by one."""
        name = self._use.name
        observer = self._journal.tool_observer if self._counted else None
        return self._journal.step(
            f"tool {name}",
            once,
            self._known_by(),
            {},
            None if observer is None else _Observed(self, observer(name, self._use.calls or once)),
            kind="tool",
            model=name,
            counted=self._counted,
            usable=self._is_usable,
        )

    @property
    def outcome(self) -> Any:
        """Return the result of the tool, or the error that it raised, after it was called."""
        return self._error if self._error is not None else self._given[0]

    @contextlib.contextmanager
    def being_made(self) -> Iterator[None]:
        """While the tool works. What it changed, and whether it can be told again, is in the record at the end."""
        frame = current_step.get()
        self._recorded_as = frame.recorded_as if frame is not None else ""
        self._lent = lending = self._contexts.lend(self._use.lent)
        token = _around.set(self)
        try:
            with with_key():
                yield
        finally:
            _around.reset(token)
        try:
            lent = lending.end(is_kept="again" not in self.record)
        except encoding.NotSerializable:
            self.record = {"again": True}
            return
        if any(lent):
            self.record["lent"] = lent

    def gave(self, value: Any) -> None:
        """The tool gave this. What is no value makes it be called again on replay."""
        self._given = [value]
        try:
            data, types = encoding.encode(value, name_of)
        except encoding.NotSerializable:
            self.record = {"again": True}
        else:
            self.record = {"value": data, "types": types} if types else {"value": data}

    def raised(self, error: Exception) -> None:
        """The tool raised this."""
        if isinstance(error, self._passing):
            raise error
        if isinstance(error, (DiskTrouble, RelativePath)):
            self._journal.fail(error)
        self._error = error
        self._contexts.raised(error, self._recorded_as)
        self.record = tool_errors.record_of(error)

    def result(self, recorded: Mapping[str, Any]) -> Any:
        """Return the recorded result of the tool, or raise its recorded error."""
        if self._lent is not None:
            lent, self._lent = self._lent, None
            lent.recorded()
        if self._error is not None:
            raise self._error
        if self._given:
            return self._given[0]
        if "raised" in recorded:
            error = tool_errors.from_record(recorded)
            self._contexts.raised(error, self._recorded_as)
            raise error
        return self._given[0]

    def _is_usable(self, name: str, text: str) -> bool:
        """Whether the record can replace the use: both its result and its changes."""
        record = json.loads(text)
        self._recorded_as = name
        if record.get("again") or ("raised" in record and self._contexts.has_ended(name)):
            return False
        try:
            given = [] if "raised" in record else [self._value_in(record)]
        except BadInput:  # a class that the code of now does not have
            return False
        is_known = self._contexts.restore(self._use.lent, record.get("lent", [None] * len(self._use.lent)))
        self._given = given if is_known else []
        return is_known

    def _value_in(self, record: Mapping[str, Any]) -> Any:
        """Return the result in a record. Raises `BadInput`."""
        return encoding.decode(record["value"], record.get("types", ()), find_class)
