"""The records of one task in flight, and how far the task has replayed them.

A step is identified by its name, its arguments and its occurrence: the second call with the same name and arguments is
another step. So steps may be made in any order, and from several threads. Arguments that are not JSON count by their
type only.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from runner.core.ledger import AccountKey, Counters, Usage, usage_in
from runner.core.made_once import made_once
from runner.journal import steps
from runner.journal.call_slots import CallSlots, is_call
from runner.journal.give_ups import GiveUp
from runner.journal.rate_limit import Turns
from runner.journal.steps import Doing, Frame, JournalProgress, NoFiles, StepFiles, current_step

if TYPE_CHECKING:
    from runner.journal.refusals import Refusals

OneFrame = TypeVar("OneFrame", bound=Frame)

HELD_AT_MOST = 32
"""So many concurrent steps are replayed in the order in which they had ended: each takes hundredths of a second."""


class RecordedSteps(Turns):
    """The records of one task, and which of them it has passed. ``calls`` is the number of its model calls so far,
    replayed or made; ``last_ended`` the key of the step that ended last outside of others."""

    calls = 0
    last_ended = ""
    _looked_up = 0  #: steps so far
    _overtaken: dict[str, str]  #: which records are to be replayed after which others: see `end_order`
    _held: frozenset[str]  #: the keys of steps that are replayed later
    _gave_up: dict[str, GiveUp]  #: how steps were given up, by the names of the results that they do not have
    _pending: frozenset[str]  #: the keys of steps that wait to be cancelled again
    _refusals: "Refusals | None" = None  #: most tasks have none
    _recorded: dict[str, str]
    found: Mapping[str, str]  #: as it was before anything was done
    _progress: JournalProgress
    _occurrences: defaultdict[str, int]
    _lock: AbstractContextManager[object]
    """Never held by who waits. Re-entrant: who says whether a record is usable looks at others."""
    doing: Doing
    files: StepFiles | NoFiles

    @made_once
    def _calls(self) -> CallSlots:
        return CallSlots([*self.found, *self._gave_up], self.found)

    def position(self) -> dict[str, int]:
        """Return how often each step was made so far, for `fast_forward`."""
        with self._lock:
            return {**self._occurrences, **self._calls.position()}

    def usages(self) -> list[Usage]:
        """Return the tokens of each recorded model call, in this attempt or before."""
        with self._lock:
            return [usage_in(json.loads(text)) for key, text in self._recorded.items() if is_call(key)]

    def account(self) -> str:
        """Return the counters of all steps so far, recorded or replayed; a task that skips them replays these."""
        with self._lock:
            return self._progress.account().text()

    def fast_forward(self, position: Mapping[str, int], account: str = "") -> None:
        """Skip to a `position`: later steps are counted from there. The `account` up to there counts as replayed."""
        with self._lock:
            self._occurrences = defaultdict(int, self._calls.fast_forward(position))
            self._progress.skip(position.values(), account)
            self._overtaken.clear()  # the others may be behind it

    def mark_done(self, name: str, args: tuple[Any, ...], times: int) -> None:
        """Count a step as made so many times by a part that this task skips, so that the next one is another step."""
        with self._lock:
            identity = self._within(current_step.get()) + steps.identity(name, args, {})
            self._occurrences[identity] = max(self._occurrences.get(identity, 0), times)

    def take_replayed(self) -> Counters:
        """Return what was replayed since the last call."""
        return self._progress.take_replayed()

    def add_replayed(self, count: Counters) -> None:
        """Count what a nested journal replayed."""
        with self._lock:
            self._progress.replay(count)

    def find_step(
        self,
        name: str,
        entry: AccountKey | None,
        outer: Frame | None,
        usable: Callable[[str, str], bool] | None = None,
        of: type[OneFrame] = Frame,  # type: ignore[assignment]  # a default of a type variable: python/mypy#3737
    ) -> tuple[OneFrame, str | None]:
        """Return the next step with this `steps.identity` within ``outer``, as a frame ``of`` that class, and its
        record.
        """
        if outer is not None and outer not in outer.journal.doing.frames:  # it is over, and this thread of it is not
            outer = None
        with self._lock:
            identity = name if outer is None else self._within(outer) + name
            self._occurrences[identity] = occurrence = self._occurrences.get(identity, 0) + 1
            frame = of(self, f"{identity}#{occurrence}", entry, outer)
            frame.ends_in = ends_in = self if outer is None or outer.journal is not self else outer
            frame.before = ends_in.last_ended
            self._looked_up += 1
            recorded = self._recorded.get(frame.key) if usable is None else frame.find(self._recorded, usable)
            if self._refusals is not None:
                self._refusals.began(frame.recorded_as, is_recorded=recorded is not None)
            if recorded is not None:
                self._progress.replay_step(entry, self._calls.inside(frame.key))
                self._progress.mark_passed(frame.recorded_as)
                if frame.recorded_as in self._overtaken and len(self._held) < HELD_AT_MOST:
                    self._held |= {frame.key}
                else:
                    ends_in.last_ended = frame.key
            elif frame.recorded_as in self._gave_up:
                self._find_give_up(frame)
        return frame, recorded

    def _find_give_up(self, frame: Frame) -> None:
        """The step has no result, as it was given up: it is to be so again."""
        frame.gave_up = found = self._gave_up[frame.recorded_as]
        self._progress.mark_passed(found.name)
        if found.answer is not None or found.refused:  # that comes first, and its reader may leave it before its end
            return
        if found.error is None:
            self._pending |= {frame.key}
        elif frame.recorded_as in self._overtaken and len(self._held) < HELD_AT_MOST:
            self._held |= {frame.key}

    def replay(self, frame: Frame, recorded: str, result_type: Any) -> Any:
        """Return the result of a recorded step."""
        self.cancel_scope.check()
        if frame.key in self._held:  # of a map, which holds none
            with self._lock:
                self._held -= {frame.key}
        self.files.lay([frame.recorded_as])
        return steps.load(recorded, result_type)

    def name_nested(self, name: str, *about: Any) -> str:
        """Return the prefix for the records of a nested kickoff; identified like a step."""
        with self._lock:
            identity = self._within(current_step.get()) + steps.identity(name, about, {})
            self._occurrences[identity] += 1
            name = f"{identity}#{self._occurrences[identity]}"
            self._progress.mark_passed(name)
        return name

    def recorded_under(self, prefix: str) -> dict[str, str]:
        """Return the records whose names have this prefix, without it."""
        with self._lock:
            found = {key: text for key, text in self._recorded.items() if key.startswith(prefix)}
        self.files.lay(found)
        return {key.removeprefix(prefix): text for key, text in found.items()}

    def get_marker(self, name: str) -> Any:
        """Return the value that `set_marker` recorded under this name; None if there is none."""
        with self._lock:
            text = self._recorded.get(f"={name}")
            if text is not None:
                self._progress.mark_passed(f"={name}")
        return None if text is None else json.loads(text)

    def _within(self, frame: Frame | None) -> str:
        return f"{frame.key}/" if frame is not None and frame.journal is self else ""
