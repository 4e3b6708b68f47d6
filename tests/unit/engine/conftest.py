"""The executor that the fleet uses, on a store in memory: no socket, no process, no waiting."""

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.events import event_bus
from runner.testing.in_process import InProcess

HEAD = """
    import json, os
    from pathlib import Path
    from runner import *

    TRACE = Path({trace!r})

    def trace(line):
        with TRACE.open("a") as file:
            file.write(line + "\\n")
    """


@pytest.fixture
def here(tmp_path: Path) -> Iterator[InProcess]:
    """A worker in this process, in which handlers of its crews are forgotten."""
    with event_bus.scoped_handlers():
        yield InProcess(tmp_path / "cache")


@pytest.fixture
def done(tmp_path: Path) -> Callable[[], list[str]]:
    """What the code of the crew traced, line by line."""
    path = tmp_path / "trace"
    return lambda: path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def crew_of(tmp_path: Path) -> Callable[[str], Path]:
    """A crew file with the given code; `trace` is there, too."""

    def write(code: str) -> Path:
        folder = tmp_path / "crew"
        folder.mkdir(exist_ok=True)
        head = textwrap.dedent(HEAD.format(trace=str(tmp_path / "trace")))
        (folder / "crew.py").write_text(head + textwrap.dedent(code))
        return folder / "crew.py"

    return write


@pytest.fixture
def begun(here: InProcess, crew_of: Callable[[str], Path]) -> Callable[..., str]:
    """Submits a crew of the given code; gives the run's id."""
    return lambda code, inputs=None, **options: here.submit(crew_of(code), inputs, **options)
