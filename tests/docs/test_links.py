"""Links within the documents lead somewhere: to a file that is there, to a heading that it has."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)

_LINK = re.compile(r"\[[^\]]*\]\((?P<to>[^()\s]+)\)")


def text_of(page: Path) -> str:
    """Without what stands in fences and in code."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8"))
    return re.sub(r"`[^`\n]*`(?!\])", "", text)


def anchors(page: Path) -> set[str]:
    """The headings, as a renderer names them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8"))
    found = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    wrong = []
    for found in _LINK.finditer(text_of(page)):
        if re.match(r"[a-z]+://", found["to"]):
            continue
        name, _, anchor = found["to"].partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            wrong.append(found["to"])
    assert wrong == []


def test_no_page_is_left_out():
    """Each page of docs is linked from another one."""
    linked = {
        (page.parent / found["to"].partition("#")[0]).resolve()
        for page in PAGES
        for found in _LINK.finditer(text_of(page))
        if found["to"].partition("#")[0]
    }
    assert [page.name for page in (ROOT / "docs").rglob("*.md") if page not in linked] == []


def test_tests_that_the_readme_names_are_there():
    """A cell of the guarantee table may shorten a test's name with an ellipsis."""
    table = (ROOT / "README.md").read_text("utf-8")
    named = re.findall(r"::(test_\w+)(…?)", table)
    assert named
    there = subprocess.run(
        ["grep", "-rhoE", r"def test_\w+", "--include=test_*.py", ROOT / "tests"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert [name for name, _ in named if not any(one.startswith(name) for one in there)] == []
