"""What people answer is read by workers of today, and by those that know no labels."""

import json

import pytest

from runner.journal.human_answers import Answer


@pytest.mark.parametrize(
    ("text", "label"),
    [("fine", None), ("", None), ("approved", "approved"), ("no: revise: it ", "no"), ("\u00fc b: \u2713", "\u00fc b")],
)
def test_an_answer_comes_back_and_is_a_text_to_all(text: str, label: str | None) -> None:
    stored = Answer(text, label).dump()
    assert json.loads(stored) == text
    found = Answer.load(stored)
    assert (found, found.label) == (text, label)
