"""Output streams: results go to stdout, everything else to stderr."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from runner.core.plain_text import json_text, printable

if TYPE_CHECKING:
    from rich.console import JustifyMethod, OverflowMethod

    from runner.core.diff import Diff


class PlainConsole(Console):
    """A console whose texts cannot command the terminal; only its own styles can."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of what is shown: all that is printed, and each cell of a table, passes through here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


STYLE = {"completed": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "waiting": "magenta"}
"""The colours of states."""

err = PlainConsole(stderr=True, highlight=False)
out = PlainConsole(highlight=False)


def say(text: str) -> None:
    """A line for the person on stderr: not wrapped, no markup read into it."""
    print(printable(text), file=sys.stderr, flush=True)


def print_line(text: str) -> None:
    """Print a line on stdout."""
    print(printable(text), flush=True)


def print_json(data: Any) -> None:
    """Print one JSON value on stdout."""
    print_line(json_text(data))


def print_diff(diff: "Diff", as_json: bool) -> int:
    """Print on stdout what differs. Returns the exit code."""
    if as_json:
        print_json(diff.to_dict())
        return 0
    from runner.core.diff import lines  # few commands need it

    styles = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines(diff):
        out.print(Text(line, style=styles.get(line[:1], "")), soft_wrap=True)
    return 0


def table_of(
    heads: Iterable[str], *, right: Container[str] = (), whole: Container[str] = (), overflow: "OverflowMethod" = "fold"
) -> Table:
    """Return a table without rows. Columns in ``right`` are aligned there, those in ``whole`` are never wrapped."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        justify: JustifyMethod = "right" if head in right else "left"
        table.add_column(head, justify=justify, no_wrap=head in whole, overflow=overflow)
    return table


def print_whole(table: Table) -> None:
    """A table; in a pipe as wide as it is, so that each of its rows is one line."""
    if out.is_terminal:
        out.print(table)
        return
    width = out.measure(table, options=out.options.update_width(10_000)).maximum
    console = PlainConsole(highlight=False, width=width)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


@contextlib.contextmanager
def only() -> Iterator[Callable[[str], None]]:
    """Yield a function that writes to stdout; all else written there, also by C code, goes to stderr meanwhile."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)

    def write(text: str) -> None:
        data = printable(text).encode()
        while data:
            data = data[os.write(saved, data) :]

    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield write
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


READING_AFTER = 0.5, 2.0  #: seconds until it is said, in a terminal and elsewhere: most crew files are read before that


@contextlib.contextmanager
def reading(file: Path) -> Iterator[None]:
    """Say that the file is being read, where that takes a while: in a terminal until it is, elsewhere in a line."""
    text = f"reading {_near(file)} ..."
    status = err.status(Text(text))
    at_once, later = READING_AFTER
    timer = threading.Timer(*((at_once, status.start) if err.is_terminal else (later, say, (text,))))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _near(file: Path) -> str:
    """A file as a person here would name it."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def counted(number: int, one: str, many: str = "") -> str:
    """So many of a thing, in words: "1 task", "2 recoveries"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def cut(text: str, most: int) -> str:
    """Shorten a text to a maximum length."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def ago(ms: int, now_ms: int) -> str:
    """Format a time as "3 min ago"."""
    seconds = max(0, (now_ms - ms) // 1000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
