"""How a run in progress looks where no terminal is."""

from runner.cli.display import Display
from runner.providers.redis.records import Event


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
