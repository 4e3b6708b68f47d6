"""What is written for people is plain English, in the terms of docs/glossary.md: without these phrases."""

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
