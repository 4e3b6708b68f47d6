"""What is written for people is plain English, in the terms of docs/glossary.md: without these phrases."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What is not written, and what is written instead.
BANNED = {
    r"how-manieth": "index, ordinal",
    r"(hears?|heard|told|tells?) of": "is notified of, receives, reports",
    r"(goes|go|gone|going|went) on\b(?!ce)": "resumes, continues",
    r"anew": "again, from the start, restarts",
    r"stumbled": "failed",
    r"(no|some)body": "the component that acts",
    r"(comes?|came) by": "finds, passes",
    r"(takes?|took) up": "resumes, continues",
    r"who asks": "the caller",
    r"laid over": "merged over",
    r"that which": "what",
    r"current line": "current branch",
    r"getting further": "making progress",
    r"back in time": "restored to an earlier state",
    r"does not serve now": "is unavailable",
    r"(is|are) had": "is available",
}
#: Names of before, for ideas that have one in the field: none of them names a module, a class or a function.
_FORMER = """
before_and_after carried Carried Earlier Hearing hearing flow_hearing audience Who telling Teller _Told Told
_Announced _Silent surroundings Asking finding making performing come_by Places give_back Nest nesting journal_here
_brought _gathering strays _stands_for instead_of hand_over did all_again opens outgoing CallsOut Gate Span breakin
polite may_break_in is_delicate Asked pacing pauses Presence Timetable _resend_overtaken resend Line patiently NOT_NOW
teach places Place Grow Growth todo Used Uses redone what_stands carried_over Caller Heard Tally turning turned
_Passing beside side_by_side judging fitting in_words show_through inprocess StateGate happened Happened goes_on
_goes_on
"""
FORMER = set(_FORMER.split())

PHRASES = {re.compile(rf"\b{phrase}\b", re.IGNORECASE): instead for phrase, instead in BANNED.items()}

TEXTS = sorted(
    path
    for folder, pattern in (
        ("runner", "**/*.py"),
        ("tasks", "*.py"),
        ("providers", "**/*.py"),
        ("providers", "**/*.lua"),
        ("docs", "*.md"),
        (".", "*.md"),
    )
    for path in (ROOT / folder).glob(pattern)
    if path.name != "CHANGELOG.md"
)


def found(text: str) -> list[str]:
    """The banned phrases of a text, across the ends of its lines, each with what to write instead."""
    flat = re.sub(r"\s*\n(?:[\s#:]|--)*", " ", text)
    return [f"{hit[0]!r}: {instead}" for phrase, instead in PHRASES.items() for hit in phrase.finditer(flat)]


def test_there_are_texts() -> None:
    assert len(TEXTS) > 300


@pytest.mark.parametrize("folder", ["runner", "tasks", "providers", "docs", "."])
def test_no_text_has_a_banned_phrase(folder: str) -> None:
    texts = [path for path in TEXTS if path.relative_to(ROOT).parts[0] == folder or path.parent == ROOT / folder]
    assert texts
    assert {str(path.relative_to(ROOT)): hits for path in texts if (hits := found(path.read_text("utf-8")))} == {}


def test_nothing_is_defined_by_a_name_of_before() -> None:
    found = []
    for path in (path for path in TEXTS if path.suffix == ".py"):
        tree = ast.parse(path.read_text("utf-8"))
        defined = [
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        found += [f"{path.relative_to(ROOT)}: {name}" for name in (path.stem, *defined) if name in FORMER]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "The run goes\n    on.",
        "Nobody asks.",
        "the how-manieth",
        "who hears\n# of it",
        "it goes\n-- on",
        "is laid over",
    ],
)
def test_a_banned_phrase_is_found(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize("text", ["it goes once", "Somebody's", "a body"])
def test_what_is_no_phrase_of_it(text: str) -> None:
    assert bool(found(text)) == (text == "Somebody's")
