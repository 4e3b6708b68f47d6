"""Files that are recorded with the steps that wrote them."""

from collections.abc import Mapping
from typing import Any

from runner.journal.steps import StepFiles


class Folder:
    """What a task's folder has, and what was laid there."""

    noticed = 0

    def __init__(self, **changed: str) -> None:
        self._changed, self.laid = changed, list[Mapping[str, Any]]()

    def mark(self) -> int:
        return 0

    def changed(self, since: int = 0) -> Mapping[str, Any]:
        return self._changed

    def lay(self, files: Mapping[str, Any]) -> None:
        self.laid.append(files)


def test_what_an_attempt_left_that_never_recorded_its_step_is_not_laid() -> None:
    journal: dict[str, str] = {}
    StepFiles(Folder(a="of the first", b="that too"), journal, journal.setdefault, lambda _: None).keep("s#1", 0)
    # It is killed here. The next attempt does the step again, and records it.
    StepFiles(Folder(a="of the second"), journal, journal.setdefault, lambda _: None).keep("s#1", 0)
    folder, passed = Folder(), list[str]()
    StepFiles(folder, journal, journal.setdefault, passed.append).lay(["s#1", "none#1"])
    assert folder.laid == [{"a": "of the second"}]
    assert sorted(passed) == sorted(journal)


def test_nor_where_the_next_attempt_wrote_nothing() -> None:
    journal: dict[str, str] = {}
    StepFiles(Folder(a="of the first"), journal, journal.setdefault, lambda _: None).keep("s#1", 0)
    StepFiles(Folder(), journal, journal.setdefault, lambda _: None).keep("s#1", 0)
    folder = Folder()
    StepFiles(folder, journal, journal.setdefault, lambda _: None).lay(["s#1"])
    assert folder.laid == [{}]
