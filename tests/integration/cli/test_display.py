"""How a run in progress looks where no terminal is, and how one that has not begun looks where one is."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from runner.cli import display as displays
from runner.cli import spending, stdio
from runner.cli.display import Display
from runner.cli.following import waits_for
from runner.client import Client
from runner.providers.records import Event
from runner.providers.redis.protocol import PROTOCOL
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


def test_a_part_of_a_task_that_a_kill_interrupted_is_not_shown_as_failed(capsys) -> None:
    with Display("plan", None) as display:
        for task, why in (
            ("ask/find", {"error": "interrupted"}),
            ("ask/sort", {"error": "no key"}),
            ("ask", {"reason": "it"}),
        ):
            display(Event("1-0", 1, "task_failed", {"task": task, **why}))
    assert [line[10:] for line in capsys.readouterr().err.splitlines()] == [
        "plan",
        "stopped   ask/find: interrupted",
        "failed    ask/sort: no key",
        "failed    ask: it",
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
    why = iter(["", "a worker is starting"])
    with Display("plan", None, waits_for=lambda: next(why, "a worker is busy")) as display:
        eventually(lambda: len(said) > 3)
        assert said[1:4] == [
            "waiting   no task is running",
            "waiting   no task is running (a worker is starting)",
            "waiting   no task is running (a worker is busy)",
        ]
        for number in range(5):
            display(Event(f"{number}-0", number, "task_started", {"task": f"task {number}"}))
        display(Event("9-0", 9, "task_completed", {"task": "task 0"}))
        eventually(lambda: "running   task 1, task 2, task 3 and 1 more" in said)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_it_is_said_that_a_file_is_read_which_takes_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_terminal: bool
) -> None:
    screen, lines = io.StringIO(), list[str]()
    monkeypatch.setattr(stdio, "err", Console(file=screen, force_terminal=is_terminal, width=60))
    monkeypatch.setattr(stdio, "say", lines.append)
    monkeypatch.chdir(tmp_path)
    file, words = tmp_path / "sub" / "crew.py", "reading sub/crew.py ..."
    monkeypatch.setattr(stdio, "READING_AFTER", (0.0, 0.0))
    with stdio.reading(file):
        eventually(lambda: (words in screen.getvalue()) is is_terminal and lines == [words] * (not is_terminal))
    monkeypatch.setattr(stdio, "READING_AFTER", (3600.0, 3600.0))
    lines.clear()
    screen.truncate(0)
    with stdio.reading(file):
        pass
    assert (lines, words in screen.getvalue()) == ([], False)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_agent_at_work_shows_what_it_came_to_so_far(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    """As one that loops: nothing begins or ends but its calls."""
    screen, lines = io.StringIO(), list[str]()
    monkeypatch.setattr(displays, "err", Console(file=screen, force_terminal=is_terminal, width=80))
    monkeypatch.setattr(displays, "say", lambda text: lines.append(text[10:]))
    monkeypatch.setattr(displays, "QUIET", (0.01, 0.02))
    monkeypatch.setattr(displays, "SPENT_EVERY", 0.01)
    calls = 0

    def spent() -> str:
        nonlocal calls
        calls += 1
        return f"{calls} model calls"

    with Display("agent", 1, spent) as display:
        display(Event("1-0", 1, "task_started", {"task": "agent"}))
        if is_terminal:
            eventually(lambda: "3 model calls" in screen.getvalue() or "9 model calls" in screen.getvalue())
        else:
            eventually(lambda: any(line.startswith("running   agent: ") for line in lines))
    looked = calls
    assert "model calls" in (screen.getvalue() if is_terminal else lines[-1])
    # What is left on the screen says no sum of a moment before the end: the last line has it
    assert "model calls" not in screen.getvalue().rpartition("1 task")[2]
    assert calls == looked  # it looks no more


@pytest.mark.parametrize(
    ("event", "fields", "why"),
    [
        ("task_retried", {"reason": "429", "delay_ms": "60000"}, "fetch is to be tried again"),
        ("task_asked", {}, "fetch awaits input"),
    ],
)
def test_a_task_that_is_to_be_retriedwaits_for_no_worker(
    monkeypatch: pytest.MonkeyPatch, event: str, fields: dict[str, str], why: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(displays, "say", lambda text: said.append(text[10:]))
    monkeypatch.setattr(displays, "QUIET", (0.01, 0.02))
    with Display("plan", None, waits_for=lambda: "a worker is busy") as display:
        display(Event("1-0", 1, "task_started", {"task": "fetch"}))
        display(Event("2-0", 2, event, {"task": "fetch", **fields}))
        after = len(said)
        eventually(lambda: len(said) > after + 1)
    assert said[-1] == f"waiting   no task is running ({why})"


def test_what_a_run_came_to_so_far_is_calls_tools_tokens_and_cost() -> None:
    nothing = {
        **dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), 0),
        **{"tools": {"paid": 0, "replayed": 0, "in_doubt": 0}, "by": [], "cost": None, "unpriced": {}},
    }
    assert spending.format_progress(nothing) == ""
    some = nothing | {"by": [{"calls": 12}], "prompt_tokens": 8000, "cost": 0.25, "currency": "USD"}
    some["tools"] = {"paid": 5, "replayed": 0, "in_doubt": 0}
    assert spending.format_progress(some) == "12 model calls; 8,000 tokens; cost $0.250; tools: 5 used"


def test_what_a_runwaits_for_is_said_by_who_is_there(client: Client, write_crew: Callable[..., Path]) -> None:
    def beat(queue: str) -> None:
        about = json.dumps({"queue": queue, "reads": [PROTOCOL]})
        client.store.workers.beat(f"w-{queue}", 60_000, about)

    crew = "from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=print)])"
    plain = client.submit(write_crew(crew))
    asks = client.submit(write_crew(crew, "asks", requirements__txt="not-installed==1.0\n"))
    queue, digest = plain.record.queue, client.store.runs.field(asks.id, "environment").partition(" ")[0]
    assert digest
    # No worker is there, then one of the queue, then one of the environment
    assert waits_for(plain) == waits_for(asks) == f"no worker serves the queue {queue!r}"
    beat(queue)
    assert waits_for(plain) == "a worker reads its code and imports what that needs, or is busy"
    assert waits_for(asks) == "a worker builds the environment that its files ask for, or is busy"
    beat(f"{queue}@{digest}")
    assert waits_for(asks) == "a worker reads its code and imports what that needs, or is busy"
