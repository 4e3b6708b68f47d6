"""What a newcomer looks for is found by one search for the field's word: the table of CONTRIBUTING.md, row by row."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 9  # places that a search may find: as many as are read in a minute

TABLE = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where is what")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (.+?) \| `(.+?)` \| (.+?) \|$", TABLE, re.MULTILINE)


@cache
def sentences() -> list[tuple[str, str]]:
    """The file and, of everything that is defined in it, the name and the first sentences."""
    return [found for top in ("runner", "providers", "tasks") for found in _of(ROOT / top)]


def _of(top: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(top.rglob("*")):
        name = file.relative_to(ROOT).as_posix()
        if name.startswith(("runner/tasks/", "runner/providers/", "runner/testing/")):
            continue
        if file.suffix == ".lua":
            yield name, file.read_text().partition("\n")[0]
        elif file.suffix == ".py":
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    first = (ast.get_docstring(node) or "").partition("\n\n")[0]
                    yield name, f"{getattr(node, 'name', '')} {' '.join(first.split())}"


def test_there_are_twelve():
    assert len(ROWS) == 12


@pytest.mark.parametrize(("question", "word", "answers"), ROWS, ids=[row[1] for row in ROWS])
def test_one_search_finds_it(question, word, answers):
    found = [(file, text) for file, text in sentences() if word.lower() in text.lower()]
    assert set(re.findall(r"`(.+?)`", answers)) <= {file for file, _ in found}, found
    assert len(found) <= MOST, found
