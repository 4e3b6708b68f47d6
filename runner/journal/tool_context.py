"""Records the changes that tools make in the objects that their framework passes to them.

A change is recorded with the tool use that made it. Concurrent uses cannot be told apart: the changes of all
of them are recorded with the last one; until then, those of them that saw a change are done again
when the task restarts.
"""

import contextlib
import threading
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from runner.core import encoding
from runner.core.encoding import NotSerializable
from runner.core.errors import BadInput
from runner.journal import context_state
from runner.journal.context_state import Snapshot
from runner.journal.journal import Journal


class Without(NamedTuple):
    """A dict without some keys: the values of the framework's own keys are neither recorded nor restored."""

    thing: Mapping[str, Any]
    keys: Collection[str]


_within: ContextVar["LentContext | None"] = ContextVar("runner_tool_context", default=None)
_of_journals: "weakref.WeakKeyDictionary[Journal, TaskContexts]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class TaskContexts:
    """The objects that tools of one task in flight may change."""

    def __init__(self, journal: Journal, name_of: encoding.NameOf, find: encoding.Find) -> None:
        self._journal, self._name_of, self._find = journal, name_of, find
        self._lent: list[_Lent] = []
        self._put: set[str] = set()
        self._raised: list[tuple[BaseException, str]] = []
        journal.ended_by = self._ended_by

    @classmethod
    def of(cls, journal: Journal, name_of: encoding.NameOf, find: encoding.Find) -> "TaskContexts":
        """Return the objects of the task with this journal."""
        with _lock:
            found = _of_journals.get(journal)
            if found is None:
                found = _of_journals[journal] = cls(journal, name_of, find)
            return found

    def lend(self, objects: Sequence[Any]) -> "LentContext":
        """Begin a tool use that may change these objects."""
        return LentContext(self, [self._begin(one) for one in objects])

    def restore(self, objects: Sequence[Any], records: Sequence[Any]) -> bool:
        """Apply the changes of a replayed tool use to the objects. Returns False if the changes are not known."""
        if len(objects) != len(records):
            return False
        puts = []
        for one, record in zip(objects, records, strict=True):
            together = record["together"] if isinstance(record, Mapping) else ""
            changes = self._journal.get_marker(_marker(together)) if together else record
            if together and changes is None:
                return False
            if changes and together not in self._put:
                puts.append((one, changes, together))
        try:
            ready: list[Callable[[], None]] = [
                put
                for one, changes, _ in puts
                for put in context_state.puts(changes, one.thing if isinstance(one, Without) else one, self._find)
            ]
        except (LookupError, AttributeError, TypeError, ValueError, BadInput):  # the code has changed
            return False
        for put in ready:
            put()
        self._put |= {together for _, _, together in puts if together}
        return True

    def raised(self, error: BaseException, name: str) -> None:
        """Note that a tool use raised this error, or replayed it from the record of that name."""
        self._raised.append((error, name))

    def has_ended(self, name: str) -> bool:
        """Whether the error recorded under this name ended an attempt at the task: such an error is not replayed."""
        return self._journal.get_marker(f"ended {name}") is not None

    def _ended_by(self, error: BaseException) -> None:
        chain = {id(one) for one in _chain(error)}
        for name in dict.fromkeys(name for raised, name in self._raised if id(raised) in chain):
            self._journal.set_marker(f"ended {name}", value=True)

    def _begin(self, thing: Any) -> "_Lent":
        around = _within.get()
        thing, without = thing if isinstance(thing, Without) else (thing, ())
        before = _seen(thing, self._name_of, without)
        with _lock:
            lent = _Lent(thing, without, before, around)
            beside = [one for one in self._lent if one.thing is thing and not lent.is_inside(one)]
            if beside:
                together = next((one.together for one in beside if one.together is not None), None)
                together = together or _Together(beside[0].before)
                for one in (*beside, lent):
                    together.add(one)
            self._lent.append(lent)
        return lent

    def _end(self, lent: "_Lent") -> Any:
        """Return the changes of a use in one object, the name of a shared record of them, or why there is neither."""
        now = _seen(lent.thing, self._name_of, lent.without)
        with _lock:
            self._lent.remove(lent)
            together = lent.together
            if together is not None:
                together.end(now)
        try:
            changes = _changes(lent.before, now)
        except NotSerializable as error:
            if together is None:
                return error
            changes = [None]
        return {"together": together.name} if changes and together is not None else changes

    def _recorded(self, lent: "_Lent") -> None:
        with _lock:
            together = lent.together
            if together is None or not together.are_recorded():
                return
        try:
            changes = _changes(together.before, together.after)
        except NotSerializable:
            return
        self._journal.set_marker(_marker(together.name), changes)


class LentContext:
    """The objects that one tool use may change, while it runs."""

    def __init__(self, contexts: TaskContexts, lent: "Sequence[_Lent]") -> None:
        self._contexts, self._lent, self._is_over = contexts, list(lent), False
        for one in self._lent:
            one.use = self
        self._token = _within.set(self)
        self.around = next((one.around for one in self._lent), None)

    def abandon(self) -> None:
        """End the use without a record."""
        if not self._is_over:
            with contextlib.suppress(NotSerializable):
                self.end(is_kept=False)

    def recorded(self) -> None:
        """Note that the use is over and recorded."""
        for one in self._lent:
            self._contexts._recorded(one)

    def end(self, *, is_kept: bool) -> list[Any]:
        """It is over: what it changed, as `restore` takes it. Raises `NotSerializable`.

        Not ``is_kept``: it cannot be replayed, nor can what others changed beside it.
        """
        self._is_over = True
        with contextlib.suppress(ValueError):  # a coroutine that is thrown away ends elsewhere
            _within.reset(self._token)
        found = [self._contexts._end(one) for one in self._lent]
        failed = next((one for one in found if isinstance(one, NotSerializable)), None)
        if failed is not None or not is_kept:
            for one in self._lent:
                if one.together is not None:
                    one.together.is_lost = True
        if failed is not None:
            raise failed
        return found


class _Lent:
    """One object that one tool use may change."""

    use: LentContext | None = None

    def __init__(
        self, thing: Any, without: Collection[str], before: Snapshot | None, around: LentContext | None
    ) -> None:
        self.thing, self.without, self.before, self.around = thing, without, before, around
        self.together: _Together | None = None

    def is_inside(self, other: "_Lent") -> bool:
        """Whether this use is inside the other one."""
        around = self.around
        while around is not None:
            if around is other.use:
                return True
            around = around.around
        return False


class _Together:
    """Concurrent uses that changed the same object."""

    def __init__(self, before: Snapshot | None) -> None:
        self.name = uuid.uuid4().hex
        self.before, self.after = before, before
        self._members: set[_Lent] = set()
        self._open = self._unrecorded = 0
        self.is_lost = False

    def add(self, lent: _Lent) -> None:
        """Add a use."""
        if lent not in self._members:
            lent.together = self
            self._members.add(lent)
            self._open += 1
            self._unrecorded += 1

    def end(self, now: Snapshot | None) -> None:
        """End one of the uses."""
        self._open -= 1
        self.after = now

    def are_recorded(self) -> bool:
        """Note that one of the uses is recorded. Returns whether all are."""
        self._unrecorded -= 1
        return not self._unrecorded and not self._open and not self.is_lost


def _marker(name: str) -> str:
    return f"tool context {name}"


def _seen(thing: Any, name_of: encoding.NameOf, without: Collection[str]) -> Snapshot | None:
    try:
        return Snapshot(thing, name_of, without)
    except RecursionError:
        return None


def _changes(before: Snapshot | None, now: Snapshot | None) -> list[Any]:
    if before is None or now is None:
        raise NotSerializable("something that is nested too deeply")
    return before.changes(now)


def _chain(error: BaseException) -> Iterable[BaseException]:
    """Yield an error and the errors that caused it."""
    seen: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen[id(one)] = one
            left += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return seen.values()
