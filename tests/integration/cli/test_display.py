"""How a run in progress looks where no terminal is, and how one that has not begun looks where one is."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from runner.cli import display as displays
from runner.cli import stdio
from runner.cli.display import Display
from runner.providers.records import Event
from runner.testing import eventually


@pytest.fixture(autouse=True)
def _no_line_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "QUIET", (3600.0, 3600.0))


def test_a_name_that_is_a_page_is_shown_in_one_line(capsys) -> None:
    page = "planning/Based on these tasks summary:\n" + "Task Number 1 - collect\n" * 40
    with Display("plan", None) as display:
        for kind in ("task_started", "task_completed"):
            display(Event("1-0", 1, kind, {"task": page}))
        display(Event("2-0", 2, "task_started", {"task": "write a report"}))
    name = "planning/Based on these tasks summary: Task Number 1 -…"
    assert [line[10:] for line in capsys.readouterr().err.splitlines()] == [
        "plan",
        f"started   {name}",
        f"done      {name}",
        "started   write a report",
    ]


def test_calls_past_the_journal_are_shown_once_for_each_place(capsys) -> None:
    with Display("plan", None) as display:
        for where in ("here/chat", "here/chat", "there/chat"):
            display(Event("1-0", 1, "calls_unrecorded", {"task": "ask", "text": f"1 to {where}"}))
    assert [line[10:] for line in capsys.readouterr().err.splitlines()] == [
        "plan",
        "past      ask: calls of models that are not in the journal, to here/chat",
        "past      ask: calls of models that are not in the journal, to there/chat",
    ]


def test_where_nothing_happens_for_long_a_line_says_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a framework is imported: no terminal shows how the time passes."""
    said: list[str] = []
    monkeypatch.setattr(displays, "say", lambda text: said.append(text[10:]))
    monkeypatch.setattr(displays, "QUIET", (0.01, 0.02))
    with Display("plan", None) as display:
        eventually(lambda: said.count("waiting   no task is running") > 1)
        for number in range(5):
            display(Event(f"{number}-0", number, "task_started", {"task": f"task {number}"}))
        display(Event("9-0", 9, "task_completed", {"task": "task 0"}))
        eventually(lambda: "running   task 1, task 2, task 3 and 1 more" in said)


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, True), (True, False), (False, True)])
def test_a_terminal_shows_that_a_file_is_read_which_takes_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_terminal: bool, shown: bool
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(stdio, "err", Console(file=screen, force_terminal=is_terminal, width=60))
    monkeypatch.setattr(stdio, "READING_AFTER", 0.0)
    monkeypatch.chdir(tmp_path)
    with stdio.reading(tmp_path / "sub" / "crew.py", shown=shown):
        if is_terminal and shown:
            eventually(lambda: "reading sub/crew.py ..." in screen.getvalue())
    assert bool(screen.getvalue()) == (is_terminal and shown)
