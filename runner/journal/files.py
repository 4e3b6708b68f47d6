"""Files that steps wrote: recorded with the step, and there again where it is replayed."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol


class Kept(Protocol):
    """The files of a task, which are kept with its steps."""

    def mark(self) -> int:
        """A point in time."""

    def changed(self, since: int = 0) -> Mapping[str, Any]:
        """What was written, changed or removed since then, as JSON."""

    def lay(self, files: Mapping[str, Any]) -> None:
        """Have that be so again."""


class StepFiles:
    """A task's files. ``recorded`` is its journal, ``record`` adds to it, ``passed`` gets the records it replays."""

    def __init__(
        self,
        files: Kept,
        recorded: Mapping[str, str],
        record: Callable[[str, str], None],
        passed: Callable[[str], None],
    ) -> None:
        self._files = files
        self._recorded = recorded
        self._record = record
        self._passed = passed
        self._records = 0
        self._noticed = 0

    def mark(self) -> int:
        """A point in time, when a step begins."""
        return self._files.mark()

    def keep(self, step: str, since: int | None = None) -> None:
        """Record what a step changed, before the step itself is: where that is replayed it has done all of it.

        Of a step whose start is unknown it is all that was not noticed before.
        """
        changed = self._files.changed(self._noticed if since is None else since)
        self._noticed = self._files.mark()
        before = self._names(step)  # by attempts that ended before they recorded the step: they do not count
        if changed or before:
            self._records += 1
            self._record(_name(step, len(before)), json.dumps([self._records, changed], ensure_ascii=False))

    def lay(self, steps: Iterable[str]) -> None:
        """Have the files be as they were after these steps."""
        names = [found for step in steps if (found := self._names(step))]
        for name in (name for found in names for name in found):
            self._passed(name)
        for number, name in sorted((json.loads(self._recorded[found[-1]])[0], found[-1]) for found in names):
            self._records = max(self._records, number)
            self._files.lay(json.loads(self._recorded[name])[1])

    def _names(self, step: str) -> list[str]:
        """Under which names files of a step are recorded, oldest first."""
        found: list[str] = []
        while (name := _name(step, len(found))) in self._recorded:
            found.append(name)
        return found


def _name(step: str, before: int) -> str:
    return f"=files{before or ''} {step}"


class NoFiles:
    """For a task whose files are not kept."""

    def mark(self) -> int:
        """Any point in time."""
        return 0

    def keep(self, step: str, since: int | None = None) -> None:
        """Nothing to record."""

    def lay(self, steps: Iterable[str]) -> None:
        """Nothing to lay."""
