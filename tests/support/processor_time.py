"""``--processor-time``: what tests cost the processor, here and in what they started: by file, and the dearest tests.

Wall time on a busy machine tells little; this is the same whoever else is on it. What a process that was left by its
parent used after that is not in it.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

_TICK = os.sysconf("SC_CLK_TCK")
_DEAREST = 40  #: as many tests are named
_OWN, _REAPED = slice(11, 13), slice(13, 15)  # of /proc/PID/stat, after the name: user and system time


def used(process: int) -> tuple[float, float]:
    """Seconds of a process, and of all that it started, dead or alive."""
    stats: dict[int, list[str]] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            stats[int(folder.name)] = stat
            children[int(stat[1])].append(int(folder.name))

    def ticks(pid: int, which: slice) -> int:
        return sum(map(int, stats[pid][which]))

    below, left = ticks(process, _REAPED), [*children[process]]
    while left:
        one = left.pop()
        left += children[one]
        below += ticks(one, _OWN) + ticks(one, _REAPED)
    return ticks(process, _OWN) / _TICK, below / _TICK


class ProcessorTime:
    """Adds it up by file, and prints the files and the dearest tests, the dearest first."""

    def __init__(self) -> None:
        self._tests: dict[str, float] = {}
        self._files: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Of one test with its fixtures; a fixture that several share is with the first of them."""
        before = used(os.getpid())
        try:
            return (yield)
        finally:
            after = used(os.getpid())
            file = self._files[item.nodeid.partition("::")[0]]
            took = [max(0.0, y - x) for x, y in zip(before, after, strict=True)]
            file[:] = [file[0] + took[0], file[1] + took[1], file[2] + 1]
            self._tests[item.nodeid] = sum(took)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The tables."""
        terminalreporter.section(f"processor time: seconds; the {_DEAREST} dearest tests")
        for name, took in sorted(self._tests.items(), key=lambda one: -one[1])[:_DEAREST]:
            terminalreporter.write_line(f"{took:8.2f}  {name}")
        terminalreporter.section("processor time: seconds here, in other processes; tests; file")
        for name, (here, below, tests) in sorted(self._files.items(), key=lambda one: -sum(one[1][:2])):
            terminalreporter.write_line(f"{here:8.2f} {below:8.2f} {tests:5.0f}  {name}")
        here, below, tests = (sum(column) for column in zip(*self._files.values(), strict=True))
        terminalreporter.write_line(f"{here:8.2f} {below:8.2f} {tests:5.0f}  in all")
