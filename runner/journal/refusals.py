"""Calls that their service refused, or that could not connect: what the code does then depends on them.

Code may ask another model instead, whose answer is paid and recorded. If the first one answered after a restart, the
code would do other things than before, and that would be paid again. So a refusal is recorded too, in the form of
`runner.journal.give_ups`, and the replay is refused in the same way, as often as before.

A refusal matters only to what comes after it, so it takes no write of its own: it is kept here, and written with the
next record of any step. If the same request is then answered, as when a client retries, that takes the place of the
refusals before it, and of what followed these. Otherwise a refusal is settled when the next step of the code that saw
it is recorded. What an attempt leaves unsettled when it ends by an error is not replayed.
"""

import json
from collections.abc import Iterable, Sequence
from contextvars import ContextVar

from runner.journal.give_ups import GiveUp, ended_by
from runner.journal.recorder import DoneStep

MOST = 64
"""So many are kept that are not written yet: each has its place in memory, and in the next write."""


class Refusal:
    """One of them. ``name``: of its record, ``request``: what was asked, as in the keys of its slots."""

    __slots__ = ("name", "request")

    def __init__(self, key: str, name: str) -> None:
        self.name, self.request = name, _request(key)


_seen: ContextVar[tuple[Refusal, ...]] = ContextVar("runner_refusals", default=())  # by the code that runs here


class Refusals:
    """The unsettled refusals of one attempt. Its journal's lock guards them."""

    def __init__(self) -> None:
        self._written = dict[Refusal, None]()
        self._unwritten = dict[Refusal, GiveUp]()
        self._before = dict[str, tuple[Refusal, ...]]()  # what the code had seen as these steps began, by their keys

    def __bool__(self) -> bool:
        return bool(self._written or self._unwritten)

    def concerns(self, step: str) -> bool:
        """Whether the record of this step is written with others, or settles refusals."""
        return bool(self._unwritten) or step in self._before

    def add(self, key: str, gave_up: GiveUp, *, is_written: bool = False) -> None:
        """The call with this key was refused, now or, if it ``is_written``, before and on replay again."""
        self._before.pop(key, None)
        refusal = Refusal(key, gave_up.name)
        if is_written:
            self._written[refusal] = None
        elif len(self._unwritten) < MOST:
            self._unwritten[refusal] = gave_up
        else:
            return
        _seen.set((*self._seen_here(), refusal))

    def _seen_here(self) -> tuple[Refusal, ...]:
        return tuple(one for one in _seen.get() if one in self._written or one in self._unwritten)

    def began(self, key: str, *, is_recorded: bool) -> None:
        """The step with this key begins here, or is replayed."""
        seen = self._seen_here()
        if is_recorded:
            for one in seen:
                self._written.pop(one, None)
            return
        if not seen:  # the call before it may have been made in a thread, for this one to see nothing
            request = _request(key)
            seen = tuple(one for one in self._unwritten if one.request == request)
        if seen:
            self._before[key] = seen

    def written_with(self, done: Iterable[DoneStep]) -> Sequence[DoneStep]:
        """Return what is to be written with these records, before them."""
        survived, undone = dict[Refusal, None](), dict[Refusal, None]()
        for step in done:
            seen, request = self._before.pop(step.step, ()), _request(step.step)
            first = next((at for at, one in enumerate(seen) if one.request == request), len(seen))
            survived |= dict.fromkeys(seen[:first])
            undone |= dict.fromkeys(seen[first:])
        for one in survived:
            undone.pop(one, None)
        for one in undone:
            self._unwritten.pop(one, None)
        found = [DoneStep(gave_up.name, gave_up.text(), None) for gave_up in self._unwritten.values()]
        if names := [one.name for one in undone if one in self._written]:
            found.append(DoneStep(f"={ended_by(names)}", json.dumps(names), None))
        self._written |= dict.fromkeys(self._unwritten)
        self._unwritten.clear()
        for one in (*survived, *undone):
            self._written.pop(one, None)
        return found

    def end(self) -> list[str]:
        """The attempt ends by an error. Return the names of the records that may have led to it."""
        names = [one.name for one in self._written]
        self._written.clear()
        self._unwritten.clear()
        return names


def _request(key: str) -> str:
    return key.rpartition("#")[0]
