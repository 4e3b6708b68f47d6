"""The names that people import are made of the words of docs/glossary.md."""

import re
from pathlib import Path

import runner
import runner.client
import runner.testing

PAGE = (Path(__file__).parents[2] / "docs/glossary.md").read_text()
TERMS = [term.lower() for term in re.findall(r"^\*\*(.+?)\.\*\*", PAGE, re.MULTILINE)]
WORDS = {word for term in TERMS for word in term.split()}

#: What needs no explanation, to somebody who writes Python or knows what the name is of.
_PLAIN = """
answer base bus children clock command conditional conformance context cut delay eventually example fault feedback
handle human json listen lite lose manual model or and prepare prepared process redis refuse request result router rule
runtime script server sqlite start type of
"""
PLAIN = set(_PLAIN.split())


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def test_names_are_made_of_words_that_are_explained():
    names = {name for module in (runner, runner.client, runner.testing) for name in module.__all__}
    unknown = {(name, word) for name in names for word in words_of(name) if word not in {*WORDS, *PLAIN}}
    assert not unknown, "explain these in docs/glossary.md"


def test_terms_stand_once_and_in_order():
    assert sorted(set(TERMS)) == TERMS


def test_each_is_explained_in_a_sentence():
    for term, text in re.findall(r"^\*\*(.+?)\.\*\* (.+(?:\n.+)*)", PAGE, re.MULTILINE):
        assert len(text.split()) > 5, term
        assert text.strip().endswith("."), term
