"""Records the changes that tools make in the objects that their framework passes to them.

A change is recorded with the tool use that made it. Concurrent uses cannot be told apart: the changes of all
of them are recorded with the last one; until then, those of them that saw a change are done again
when the task restarts. What other code of the author's changes beside them is not recorded: that code runs again, too.
"""

import contextlib
import threading
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

from runner.core import encoding
from runner.core.encoding import NotSerializable
from runner.core.errors import BadInput
from runner.journal import context_state
from runner.journal.context_state import Contents, Snapshot
from runner.journal.give_ups import causes_of, reference_to
from runner.journal.hook_scope import HookScope, hook_scope
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
        self._raised: list[tuple[Callable[[], BaseException | None], str]] = []
        journal.ended_by = self._ended_by

    @classmethod
    def of(cls, journal: Journal, name_of: encoding.NameOf, find: encoding.Find) -> "TaskContexts":
        """Return the objects of the task with this journal."""
        with _lock:
            found = _of_journals.get(journal)
            if found is None:
                found = _of_journals[journal] = cls(journal, name_of, find)
            return found

    @staticmethod
    def known(journal: Journal) -> "TaskContexts | None":
        """Return the objects of the task with this journal, if any tool was used in it."""
        return _of_journals.get(journal)

    def lend(self, objects: Sequence[Any]) -> "LentContext":
        """Begin a tool use that may change these objects."""
        if (hook := hook_scope.get()) is not None:
            hook.stop()
        return LentContext(self, [self._begin(one) for one in objects], hook)

    def restore(self, objects: Sequence[Any], records: Sequence[Any]) -> bool:
        """Apply the changes of a replayed tool use to the objects. Returns False if the changes are not known."""
        with HookScope(lambda: self) as scope, scope.at_work():
            return self._restored(objects, records)

    def _restored(self, objects: Sequence[Any], records: Sequence[Any]) -> bool:
        if len(objects) != len(records):
            return False
        puts = []
        contents: list[tuple[Contents, dict[str, Any]]] = []
        for one, record in zip(objects, records, strict=True):
            together = record["together"] if isinstance(record, Mapping) and "together" in record else ""
            changes = self._journal.get_marker(_marker(together)) if together else record
            if together and changes is None:
                return False
            if changes and together not in self._put:
                parts = changes["parts"] if isinstance(changes, Mapping) else [changes]
                root = one.thing if isinstance(one, Without) else one
                if isinstance(one, Contents):
                    contents.append((one, root := one.read(self._name_of)))
                puts.append((root, parts, together))
        try:
            ready = [put for one, parts, _ in puts for put in context_state.puts(parts[0], one, self._find)]
            _call_all(ready)
            for one, parts, _ in puts:
                for part in parts[1:]:  # what they change, earlier ones may have made
                    _call_all(context_state.puts(part, one, self._find))
            for whose, now in contents:
                whose.write(now, self._name_of, self._find)
        except (LookupError, AttributeError, TypeError, ValueError, BadInput):  # the code has changed
            return False
        self._put |= {together for _, _, together in puts if together}
        return True

    def raised(self, error: BaseException, name: str) -> None:
        """Note that a tool use raised this error, or replayed it from the record of that name."""
        self._raised.append((reference_to(error), name))

    def has_ended(self, name: str) -> bool:
        """Whether the error recorded under this name ended an attempt at the task: such an error is not replayed."""
        return self._journal.get_marker(f"ended {name}") is not None

    def _ended_by(self, error: BaseException) -> None:
        chain = {id(one) for one in causes_of(error)}
        for name in dict.fromkeys(name for raised, name in self._raised if id(raised()) in chain):
            self._journal.set_marker(f"ended {name}", value=True)

    def pause(self) -> "list[tuple[_Changing, _Lent]]":
        """Note what uses not around this one changed: until `go_on`, changes are not theirs. Returns those uses."""
        with _lock:
            around = set(_uses_around(_within.get()))
            kept = {id(one.together) for one in self._lent if one.use in around and one.together is not None}
            open_ = [one for one in self._lent if one.use not in around and id(one.together) not in kept]
            seen = self._all_seen(open_)
            paused = dict[int, tuple[_Changing, _Lent]]()
            for one in open_:
                for changing in (one, *([one.together] if one.together is not None else [])):
                    paused[id(changing)] = changing, one
            for changing, one in paused.values():
                changing.pause(seen[id(one.thing)])
            return list(paused.values())

    def go_on(self, paused: "Sequence[tuple[_Changing, _Lent]]") -> None:
        """The uses that were paused change their objects again."""
        with _lock:
            seen = self._all_seen([one for _, one in paused])
            for changing, one in paused:
                changing.go_on(seen[id(one.thing)])

    def _all_seen(self, lent: "Sequence[_Lent]") -> dict[int, Snapshot | None]:
        return {id(one.thing): _seen(one.thing, self._name_of, one.without) for one in lent}

    def _begin(self, thing: Any) -> "_Lent":
        around = _within.get()
        thing, without = thing if isinstance(thing, Without) else (thing, ())
        before = _seen(thing, self._name_of, without)
        with _lock:
            lent = _Lent(thing, without, before, around)
            beside = [one for one in self._lent if one.thing is thing and not lent.is_inside(one)]
            if beside:
                together = next((one.together for one in beside if one.together is not None), None)
                together = together or _Together(beside[0])
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
            changes = lent.changes(now)
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
            changes = together.changes(together.after)
        except NotSerializable:
            return
        self._journal.set_marker(_marker(together.name), changes)


class LentContext:
    """The objects that one tool use may change, while it runs."""

    def __init__(self, contexts: TaskContexts, lent: "Sequence[_Lent]", hook: HookScope | None) -> None:
        self._hook = hook
        self._contexts, self._lent, self._is_over = contexts, list(lent), False
        for one in self._lent:
            one.use = self
        self._tokens = _within.set(self), hook_scope.set(None)
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
        _reset(*self._tokens)
        found = [self._contexts._end(one) for one in self._lent]
        if self._hook is not None:
            self._hook.go_on()
        failed = next((one for one in found if isinstance(one, NotSerializable)), None)
        if failed is not None or not is_kept:
            for one in self._lent:
                if one.together is not None:
                    one.together.is_lost = True
        if failed is not None:
            raise failed
        return found


def _reset(*tokens: Token[Any]) -> None:
    with contextlib.suppress(ValueError):  # a coroutine that is thrown away ends elsewhere
        for one in tokens:
            one.var.reset(one)


class _Changing:
    """What changes in an object, except for what is changed by others during a pause."""

    is_shared = False
    """Whether others change it, too: then a count is not what it was, when this is restored."""

    def __init__(self, before: Snapshot | None) -> None:
        self.before = before
        self.parts: list[list[Any]] = []
        self.unknown: NotSerializable | None = None
        self._made_by_others: set[int] = set()

    def pause(self, now: Snapshot | None) -> None:
        """Note what changed until now."""
        try:
            part = _changes(self.before, now, by_difference=True)
            self._require_own(now)
        except NotSerializable as error:
            self.unknown = error
        else:
            self.parts += [part] if part else []
        self.before = now

    def go_on(self, now: Snapshot | None) -> None:
        """Pass over what changed during the pause."""
        self.is_shared = True
        if now is not None and self.before is not None:
            self._made_by_others |= now.things.keys() - self.before.things.keys()
        self.before = now

    def changes(self, now: Snapshot | None) -> Any:
        """Return the changes, as `TaskContexts.restore` takes them. Raises `NotSerializable`."""
        if self.unknown is not None:
            raise self.unknown
        last = _changes(self.before, now, by_difference=self.is_shared)
        self._require_own(now)
        parts = [*self.parts, last] if last else self.parts
        return {"parts": parts} if len(parts) > 1 else [one for part in parts for one in part]

    def _require_own(self, now: Snapshot | None) -> None:
        """Raise `NotSerializable` if something is changed that others made: it is not there when this is restored."""
        if self.before is None or now is None:
            return
        for key in self._made_by_others:
            was, became = self.before.things.get(key), now.things.get(key)
            if was is not None and became is not None and was.inside != became.inside:
                raise NotSerializable("a change in what other code made")


class _Lent(_Changing):
    """One object that one tool use may change."""

    use: LentContext | None = None

    def __init__(
        self, thing: Any, without: Collection[str], before: Snapshot | None, around: LentContext | None
    ) -> None:
        super().__init__(before)
        self.thing, self.without, self.around = thing, without, around
        self.together: _Together | None = None

    def is_inside(self, other: "_Lent") -> bool:
        """Whether this use is inside the other one."""
        return any(one is other.use for one in _uses_around(self.around))


class _Together(_Changing):
    """Concurrent uses that changed the same object."""

    def __init__(self, first: _Lent) -> None:
        super().__init__(first.before)
        self.parts, self.unknown, self._made_by_others = [*first.parts], first.unknown, {*first._made_by_others}
        self.is_shared = first.is_shared
        self.name = uuid.uuid4().hex
        self.after = first.before
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


def _call_all(functions: Iterable[Callable[[], None]]) -> None:
    for one in functions:
        one()


def _uses_around(use: LentContext | None) -> Iterator[LentContext]:
    while use is not None:
        yield use
        use = use.around


def _marker(name: str) -> str:
    return f"tool context {name}"


def _seen(thing: Any, name_of: encoding.NameOf, without: Collection[str]) -> Snapshot | None:
    try:
        return Snapshot(thing, name_of, without)
    except RecursionError:
        return None


def _changes(before: Snapshot | None, now: Snapshot | None, *, by_difference: bool) -> list[Any]:
    if before is None or now is None:
        raise NotSerializable("something that is nested too deeply")
    return before.changes(now, by_difference=by_difference)
