"""A table of measurements says at which commit they were made."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["docs/faults.md", "docs/performance.md", "docs/measurements.md", "ops/chaos/README.md", "ops/proof/README.md"]

_TABLE = re.compile(r"(?m)(?:^\|.*\n)+")
_COMMIT = re.compile(r"\b(?=\w*\d)(?=\w*[a-f])[0-9a-f]{7,12}\b")


def wrong(text: str) -> list[str]:
    """The first lines of tables with numbers, of which neither they nor the text around them name a commit."""
    sections = re.split(r"(?m)^#+ ", text)
    return [
        table.splitlines()[0]
        for section in sections
        for table in _TABLE.findall(section)
        if re.search(r"\| [^|]*\d", table) and not _COMMIT.search(section)
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_table_of_numbers_names_its_commit(name: str) -> None:
    assert wrong((ROOT / name).read_text("utf-8")) == []


def test_one_that_does_not_is_found() -> None:
    table = "| what | time |\n|---|---|\n| a fork | 3 ms |\n"
    assert wrong(table) == ["| what | time |"]
    assert wrong(f"At 67d3a9c:\n\n{table}") == []
