"""A task of which one branch asks a person, while others go on side by side."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runner.core.errors import InputRequired
from runner.core.ledger import STEP
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne


class Recorder(OneByOne):
    """Keeps steps as a store would, and what was asked of it in which order."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.asked: list[str] = []

    def begin_step(self, entry: Any = STEP, **about: Any) -> None:
        self.asked.append("begin")

    def record_step(self, step: str, value: str, **about: Any) -> None:
        self.asked.append("record")
        self.recorded[step] = value

    def place(self, step: str) -> str:
        return step


def test_what_was_begun_beside_a_question_is_recorded_and_nothing_more_begins() -> None:
    recorder = Recorder()
    begun, asked = threading.Event(), threading.Event()

    def attempt() -> Journal:
        return Journal(recorder.recorded, recorder, CancelScope())

    def long() -> str:
        begun.set()
        assert asked.wait(30)
        return "whole"

    def ask(journal: Journal) -> str:
        return journal.answer("And now?", lambda place: recorder.recorded.get(place) and "go on")

    def branch(journal: Journal) -> list[str]:
        return [
            journal.step(name, do, (), {}) for name, do in (("one", lambda: "1"), ("long", long), ("two", lambda: "2"))
        ]

    # Given a branch in the middle of a step, when another asks a person who has not answered
    first = attempt()
    first.ends_when_asked = True
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(branch, first)
        assert begun.wait(30)
        with pytest.raises(InputRequired, match="And now"):
            ask(first)
        asked.set()
        with pytest.raises(InputRequired, match="And now"):
            beside.result(30)
    # Then its step is recorded, and the next was not begun
    assert list(recorder.recorded.values()) == ['"1"', '"whole"']
    assert recorder.asked == ["begin", "record"] * 2
    # And where it is answered, it goes on from there
    recorder.recorded[first.step_of("And now?")] = '"go on"'
    second = attempt()
    assert (ask(second), branch(second)) == ("go on", ["1", "whole", "2"])
    assert recorder.asked == ["begin", "record"] * 3
