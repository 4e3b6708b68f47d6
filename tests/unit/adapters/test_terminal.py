"""What a task prints is kept: all of a program's, of an agent no more than the question that it may be."""

import contextvars
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.adapters.frameworks import terminal
from runner.adapters.frameworks.terminal import Printed, attach


def test_an_agent_that_prints_for_days_keeps_its_last_line() -> None:
    printed = Printed(last_line=True)
    for number in range(10_000):
        printed.write(f"line {number}\n")
    printed.write("Are you sure")
    printed.write("? ")
    assert printed.line() == "Are you sure?"
    assert len(printed.getvalue()) < 100


def test_what_was_answered_is_no_question_again() -> None:
    for printed in (Printed(), Printed(last_line=True)):
        printed.write("Name? ")
        printed.answered = printed.tell()
        assert printed.line() == ""
        printed.write("Thanks.\nAge? ")
        assert printed.line() == "Age?"
        printed.write("or not? ")
        assert printed.line() == "Age? or not?"


def test_a_program_keeps_what_it_printed() -> None:
    printed = Printed()
    printed.write("one\n")
    printed.write("two\n")
    assert printed.getvalue() == "one\ntwo\n"


def test_where_a_program_reads_all_lines_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    attach()
    assert list(sys.stdin) == []
    assert sys.stdin.read() == ""


def test_a_task_that_was_not_attached_reads_what_it_would_without_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    journals = SimpleNamespace(ends_when_asked=False), SimpleNamespace(ends_when_asked=False)
    (tmp_path / "in").write_text("a line\n")
    with (tmp_path / "in").open() as real:
        monkeypatch.setattr(sys, "stdin", real)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        monkeypatch.setattr(terminal, "current_journal", lambda: (journals[0], False))
        contextvars.Context().run(attach)
        with pytest.raises(io.UnsupportedOperation):
            contextvars.Context().run(sys.stdin.fileno)  # as in a thread that it began
        monkeypatch.setattr(terminal, "current_journal", lambda: (journals[1], False))
        assert contextvars.Context().run(sys.stdin.fileno) == real.fileno()
        assert contextvars.Context().run(input) == "a line"


def test_what_a_thread_of_a_task_prints_is_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    journals = SimpleNamespace(printed=None), SimpleNamespace(printed=None)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    kept = []
    for journal in journals:
        monkeypatch.setattr(terminal, "current_journal", lambda: None)
        monkeypatch.setattr(terminal, "active_journal", lambda one=journal: one)
        kept.append(contextvars.Context().run(attach))
        contextvars.Context().run(print, "of its own")  # as in a thread that it began
    monkeypatch.setattr(terminal, "active_journal", lambda: None)
    contextvars.Context().run(print, "of nobody")
    assert [one.getvalue() for one in kept] == ["of its own\n"] * 2
