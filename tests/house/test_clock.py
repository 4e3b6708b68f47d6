"""The engine and the journal read time from the clock that they are given: so they can be run on simulated time."""

import ast
from pathlib import Path

FOLDERS = ("runner/engine", "runner/journal")

#: Modules by which a clock is read or slept by.
CLOCKS = {"time", "datetime", "sched"}
#: What waits by a clock of its own.
TIMERS = {("threading", "Timer"), ("asyncio", "sleep"), ("asyncio", "timeout"), ("asyncio", "wait_for")}

#: Who may, and why.
EXCEPTIONS = {
    "runner/journal/cancellation/async_raise.py": "`sleep(0)` lets another thread run: no time passes",
    "runner/journal/cancellation/calls_in_flight.py": "the processor's time of a thread shows whether that is blocked",
    "runner/journal/group_commit.py": "`sleep(0)` lets other coroutines run: no time passes",
}


def reads_a_clock(file: Path) -> bool:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Import(names) if {alias.name.partition(".")[0] for alias in names} & CLOCKS:
                return True
            case ast.ImportFrom(module, names) if module in CLOCKS:
                return True
            case ast.ImportFrom(module, names) if {(module, alias.name) for alias in names} & TIMERS:
                return True
            case ast.Attribute(ast.Name(module), name) if (module, name) in TIMERS:
                return True
    return False


def test_time_comes_from_the_clock_that_was_given(root: Path) -> None:
    files = [file for folder in FOLDERS for file in (root / folder).rglob("*.py")]
    assert files
    found = {file.relative_to(root).as_posix() for file in files if reads_a_clock(file)}
    assert found == EXCEPTIONS.keys(), "use the `Clock` that the executor and the journal have"
