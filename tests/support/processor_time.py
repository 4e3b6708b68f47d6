"""``--processor-time``: what the tests of each file cost the processor, in this process and in those that it started.

Wall time on a busy machine tells little; this is the same whoever else is on it. What a process that was left by its
parent used after that is not in it.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

_TICK = os.sysconf("SC_CLK_TCK")
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
    """Adds it up by file, and prints the files, the dearest first."""

    def __init__(self) -> None:
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
            file[:] = [*(a + max(0.0, y - x) for a, x, y in zip(file, before, after, strict=False)), file[2] + 1]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The table."""
        terminalreporter.section("processor time: seconds here, in other processes; tests; file")
        for name, (here, below, tests) in sorted(self._files.items(), key=lambda one: -sum(one[1][:2])):
            terminalreporter.write_line(f"{here:8.2f} {below:8.2f} {tests:5.0f}  {name}")
        here, below, tests = (sum(column) for column in zip(*self._files.values(), strict=True))
        terminalreporter.write_line(f"{here:8.2f} {below:8.2f} {tests:5.0f}  in all")
