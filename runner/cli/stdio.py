"""What goes where: results on stdout, everything else on stderr."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)


def say(text: str) -> None:
    """A line for the person, as it is: not wrapped, no markup read into it."""
    print(text, file=sys.stderr, flush=True)


def print_json(data: Any) -> None:
    """One JSON value on stdout."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_whole(table: Table) -> None:
    """A table; in a pipe as wide as it is, so that each of its rows is one line."""
    if out.is_terminal:
        out.print(table)
        return
    width = out.measure(table, options=out.options.update_width(10_000)).maximum
    console = Console(highlight=False, width=width)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


@contextlib.contextmanager
def only(clean: bool) -> Iterator[Callable[[str], None]]:
    """Gives a function that writes to stdout. If ``clean``, all else that is written there goes to stderr meanwhile.

    A crew file may print when it is imported, also from C code.
    """
    sys.stdout.flush()
    if not clean:
        yield lambda text: (sys.stdout.write(text), sys.stdout.flush(), None)[-1]
        return
    saved = os.dup(1)
    os.dup2(2, 1)

    def write(text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(saved, data) :]

    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield write
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


READING_AFTER = 0.5  #: seconds: most crew files are read before that


@contextlib.contextmanager
def reading(file: Path, *, shown: bool) -> Iterator[None]:
    """Say in a terminal that the file is being read, where that takes a while. What is said goes when it is."""
    if not (shown and err.is_terminal):
        yield
        return
    status = err.status(Text(f"reading {_near(file)} ..."))
    timer = threading.Timer(READING_AFTER, status.start)
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


def ago(ms: int, now_ms: int) -> str:
    """A time as "3 min ago"."""
    seconds = max(0, (now_ms - ms) // 1000)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
