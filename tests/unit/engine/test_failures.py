"""What is kept of an error: the crew's frames in whole, those around in short, no secrets, and not too much."""

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runner.core.errors import TaskTimeout
from runner.engine.failures import LONGEST, describe, trace_of, without_code

CREW = """
    import json

    def average(rows):
        return sum(rows) / len(rows)

    def whole(rows):
        return average(rows)

    def deep(text):
        return json.loads(text)

    def again(n):
        return again(n - 1) if n else average([])

    def through(text):
        return json.loads(text, object_hook=lambda found: average([]))

    def handled():
        try:
            average([])
        except ZeroDivisionError:
            raise KeyError("no average")

    def caused():
        try:
            average([])
        except ZeroDivisionError as error:
            raise RuntimeError("first\\n  line\\x1b[31m") from error

    def secret():
        raise RuntimeError("refused with password=correct-horse")
"""


@pytest.fixture
def crew(tmp_path: Path) -> ModuleType:
    """A module as it is loaded from a bundle."""
    folder = tmp_path / "pack"
    folder.mkdir()
    file = folder / "crew.py"
    file.write_text(textwrap.dedent(CREW))
    module = ModuleType("_crew_0123456789abcdef.pack.crew")
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    return module


def raised(call: Callable[..., Any], *args: Any) -> Exception:
    try:
        call(*args)
    except Exception as error:
        return error
    raise AssertionError


def test_the_crews_frames_are_named_as_in_its_bundle(crew: ModuleType) -> None:
    found = trace_of(raised(crew.whole, []))
    assert found == textwrap.dedent("""\
        Traceback (most recent call last):
          ... 1 frame of tests
          File "pack/crew.py", line 8, in whole
            return average(rows)
          File "pack/crew.py", line 5, in average
            return sum(rows) / len(rows)
        ZeroDivisionError: division by zero""").replace("tests", __name__.partition(".")[0])


def test_where_a_library_raised_is_shown_by_the_librarys_name(crew: ModuleType) -> None:
    found = trace_of(raised(crew.deep, "{")).splitlines()
    assert '  File "pack/crew.py", line 11, in deep' in found
    assert any(line.startswith('  File "json/decoder.py", line ') for line in found)
    assert str(Path(json.__file__).parent) not in "\n".join(found)


def test_frames_between_are_counted(crew: ModuleType) -> None:
    found = trace_of(raised(crew.through, '{"a": 1}'))
    assert "frames of json\n" in found
    assert found.index("in through") < found.index("frames of json") < found.index("in average")


def test_what_recurses_is_cut(crew: ModuleType) -> None:
    found = trace_of(raised(crew.again, 500))
    assert "frames of the crew" in found
    assert len(found) <= LONGEST
    assert found.startswith("Traceback")
    assert found.endswith("ZeroDivisionError: division by zero")


def test_what_is_long_loses_its_middle(crew: ModuleType) -> None:
    error = raised(crew.whole, [])
    for _ in range(3):
        before, error = error, raised(crew.again, 500)
        error.__cause__ = before
    found = trace_of(error)
    assert len(found) <= LONGEST + 10
    assert "\n  ...\n" in found
    assert found.endswith("ZeroDivisionError: division by zero")


def test_what_led_to_it_comes_first(crew: ModuleType) -> None:
    found = trace_of(raised(crew.handled))
    assert (
        found.index("ZeroDivisionError")
        < found.index("while that was handled:")
        < found.index("KeyError: 'no average'")
    )
    found = trace_of(raised(crew.caused))
    assert "which caused:\nTraceback" in found
    assert found.endswith("RuntimeError: first line\\x1b[31m"), "one line, and nothing that a terminal obeys"


def test_secrets_are_masked_in_what_was_said_and_in_the_code(crew: ModuleType) -> None:
    found = trace_of(raised(crew.secret))
    assert "password=***" in found
    assert "correct-horse" not in found


def test_a_traceback_without_code_has_none(crew: ModuleType) -> None:
    found = without_code(trace_of(raised(crew.whole, [])))
    assert '  File "pack/crew.py", line 5, in average' in found
    assert "len(rows)" not in found
    assert found.endswith("ZeroDivisionError: division by zero")


def test_an_error_that_was_never_raised_has_no_trace() -> None:
    assert trace_of(TaskTimeout("the task took longer than 3 s")) == ""
    assert describe(TaskTimeout("the task took longer than 3 s")) == "the task took longer than 3 s"


def test_an_error_that_cannot_be_shown_is_named(crew: ModuleType) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def mute() -> None:
        raise Mute

    assert trace_of(raised(mute)).endswith("\nMute")
    assert sys.exc_info() == (None, None, None)
