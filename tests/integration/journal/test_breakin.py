"""What breaks into a task reaches that task, and nothing after it."""

import builtins
import importlib
import sys
import threading
import time

import pytest

from runner.core.errors import TaskTimeout, TimedOut
from runner.journal.cancellation import async_raise, timing
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import CancelScope


def test_a_span_that_is_over_is_not_broken_into():
    section = InterruptibleSection()
    section.over()
    assert section.wait(0)
    assert section.break_in(TimedOut)
    time.sleep(0)  # where it would come


def test_what_comes_while_a_span_ends_comes_out_of_its_end(eventually):
    section, begun = InterruptibleSection(), threading.Event()

    def break_in() -> None:
        begun.set()
        eventually(lambda: section.break_in(TimedOut), why="it is at a place where it may be broken into")

    other = threading.Thread(target=break_in)
    other.start()
    with pytest.raises(TimedOut):  # noqa: PT012 - wherever it comes
        while True:
            begun.is_set()
    section.over()
    other.join()
    assert section.wait(0)


def test_a_write_that_begins_as_a_task_is_to_be_broken_into_ends_first() -> None:
    """Whoever breaks in has the task go on for a moment: it was in no write when that was asked."""
    inside = 0
    for _ in range(40):
        cancel_scope, writes = CancelScope(), list[str]()
        with pytest.raises(TaskTimeout), timing.timed(cancel_scope, 0.001):  # noqa: PT012 - wherever it comes
            while True:
                with cancel_scope.write:
                    writes.append("begun")
                    for _ in range(300):
                        pass
                    writes.clear()
                for _ in range(300):
                    pass
        inside += len(writes)
        assert not cancel_scope._in_write.entries
    assert inside == 0


@pytest.mark.parametrize("microseconds", range(0, 60, 3))
def test_a_task_that_ends_as_its_time_does_is_one_or_the_other(microseconds: int) -> None:
    """And what comes after it is left alone, whichever it was."""
    for _ in range(20):
        end = time.monotonic() + 0.002 + microseconds / 1e6
        try:
            with timing.timed(CancelScope(), 0.002):
                while time.monotonic() < end:
                    pass
        except TaskTimeout:
            pass
        for _ in range(300):
            time.sleep(0)


def test_whoever_waits_for_the_end_of_a_span_is_told_at_once() -> None:
    section = InterruptibleSection()
    assert not section.wait(0)
    threading.Timer(0.01, section.over).start()
    assert section.wait(60)


@pytest.mark.timeout(60)
def test_a_thread_that_breaks_into_another_one_ends_its_own_span() -> None:
    """As a task does that is stopped while calls beside it hang. What it starts for that is not taken for itself."""
    go, begun = threading.Event(), threading.Event()
    sections: list[InterruptibleSection] = []

    def hang() -> None:
        section = InterruptibleSection()
        try:
            sections.append(section)
            begun.set()
            go.wait()
        except TimedOut:
            pass
        finally:
            section.over()

    other = threading.Thread(target=hang)
    other.start()
    begun.wait()
    for _ in range(50):
        mine = InterruptibleSection()
        with pytest.raises(TimedOut):  # noqa: PT012 - wherever it comes
            assert mine.break_in(TimedOut)
            time.sleep(0)
        sections[0].break_in(TimedOut)
        mine.over()
    go.set()
    other.join()


def test_a_thread_that_went_on_while_it_was_looked_at_is_not_broken_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be in a hook by now, with a lock taken."""
    first, second, begun, there = (threading.Event() for _ in range(4))
    sections: list[InterruptibleSection] = []

    def work() -> None:
        sections.append(InterruptibleSection())
        begun.set()
        first.wait()
        there.set()
        second.wait()
        sections[0].over()

    def look(*_: object) -> bool:
        first.set()
        there.wait()
        return False

    other = threading.Thread(target=work)
    other.start()
    begun.wait()
    monkeypatch.setattr(async_raise, "_in_critical_section", look)
    assert not sections[0].break_in(TimedOut)
    second.set()
    other.join()


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Makes a package that waits in the midst of its import; gives the events that it has begun, and may go on."""
    (package := tmp_path / "slow_library").mkdir()
    (package / "part.py").write_text("HERE = True")
    (package / "__init__.py").write_text(
        "import builtins\nfrom . import part\nbegun, going_on = builtins.slow_library\nbegun.set()\n"
        "while not going_on.is_set():\n    pass\n"
    )
    events = threading.Event(), threading.Event()
    monkeypatch.setattr(builtins, "slow_library", events, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield events
    for name in ("slow_library", "slow_library.part"):
        sys.modules.pop(name, None)


def import_slow_library(sections: list[InterruptibleSection], ends: list[str]) -> None:
    section = InterruptibleSection()
    sections.append(section)
    try:
        try:
            importlib.import_module("slow_library")
            ends.append("imported")
            while True:
                time.sleep(0)  # which lets others run; no time passes
        finally:
            section.over()
    except TimedOut:
        section.over()
        ends.append("broken into")


def test_the_import_of_a_library_is_not_broken_into(library, tmp_path, monkeypatch, eventually):
    """It was left there in part, and whatever imported it afterwards in that process failed."""
    monkeypatch.setattr(async_raise, "_LIBRARIES", (str(tmp_path),))
    begun, going_on = library
    sections, ends = list[InterruptibleSection](), list[str]()
    other = threading.Thread(target=import_slow_library, args=(sections, ends))
    other.start()
    begun.wait(60)
    assert not sections[0].break_in(TimedOut)
    going_on.set()
    eventually(lambda: "imported" in ends, why="it is imported whole")
    eventually(lambda: sections[0].break_in(TimedOut), why="it may be broken into again")
    other.join()
    assert ends == ["imported", "broken into"]
    assert importlib.import_module("slow_library").part.HERE


@pytest.mark.parametrize("how", ["it is no library", "it takes too long"])
def test_the_import_of_the_task_s_own_file_is_broken_into_and_one_that_hangs(
    how, library, tmp_path, monkeypatch, eventually
):
    if how == "it takes too long":
        monkeypatch.setattr(async_raise, "_LIBRARIES", (str(tmp_path),))
        monkeypatch.setattr(async_raise, "IMPORT", 0.01)
    sections, ends = list[InterruptibleSection](), list[str]()
    other = threading.Thread(target=import_slow_library, args=(sections, ends))
    other.start()
    library[0].wait(60)
    eventually(lambda: sections[0].break_in(TimedOut), why="it may be broken into")
    other.join()
    assert ends == ["broken into"]
