"""The names that people import are made of the words of docs/glossary.md."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import runner
import runner.client
import runner.providers
import runner.testing
from runner.cli import VERBS

PAGE = (Path(__file__).parents[2] / "docs/glossary.md").read_text()
TERMS = [term.lower() for term in re.findall(r"^\*\*(.+?)\.\*\*", PAGE, re.MULTILINE)]
WORDS = {word for term in TERMS for word in (*term.split(), f"{term}d")}

#: What needs no explanation, to somebody who writes Python or knows what the name is of.
_PLAIN = """
answer base bus children chunk clock command completed conditional conformance context created cut delay detect doctor
error eventually example execution failed fault feedback file finished found handle human info json listen lite lose
manual model not or and paused prepare prepared process received redis refuse request requested result router rule
runtime selection server show sqlite start started type of up usage validate wait
"""
PLAIN = set(_PLAIN.split())


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_known(word: str) -> bool:
    return not {word, word.removesuffix("s")}.isdisjoint({*WORDS, *PLAIN})


def event_types() -> list[str]:
    """The types of the events that there are classes of; those of signals are named after them."""
    modules = (import_module(f"runner.events.{name}_events") for name in ("work", "flow", "call", "system"))
    return [
        name.removesuffix("Event")
        for module in modules
        for name, cls in vars(module).items()
        if re.search(r"^(?!Sig[A-Z])[A-Z].+Event$", name) and getattr(cls, "__module__", "") == module.__name__
    ]


NAMES = {
    **{module.__name__: module.__all__ for module in (runner, runner.client, runner.providers, runner.testing)},
    "verbs": list(VERBS),
    "events": event_types(),
}


@pytest.mark.parametrize("where", NAMES)
def test_names_are_made_of_words_that_are_explained(where: str) -> None:
    assert len(NAMES[where]) > 2
    unknown = {(name, word) for name in NAMES[where] for word in words_of(name) if not is_known(word)}
    assert not unknown, "explain these in docs/glossary.md"


def test_every_plain_word_is_used():
    used = {word for names in NAMES.values() for name in names for word in words_of(name)}
    assert {word for word in PLAIN if used.isdisjoint({word, f"{word}s"})} == set()


def test_terms_stand_once_and_in_order():
    assert sorted(set(TERMS)) == TERMS


def test_each_is_explained_in_a_sentence():
    for term, text in re.findall(r"^\*\*(.+?)\.\*\* (.+(?:\n.+)*)", PAGE, re.MULTILINE):
        assert len(text.split()) > 5, term
        assert text.strip().endswith("."), term
