"""What is changed process-wide stands in one table of docs/internals.md, and nothing else is."""

import re
from pathlib import Path

import pytest

#: How one reaches into what others have made: a file with one of these stands in the table.
REACHES = re.compile(
    r"sys\.meta_path\.(?:insert|append)|(?<![.\w])(?:wrap|precede)\((?:module|library|session|multi|easy)\b"
    r"|setattr\((?:owner|place|os|sys|builtins|library)\b|sys\.set(?:trace|profile)\("
    r"|vars\(crewai_event_bus\)|set_lock_backend|Knowledge\.add_sources = |TaskPool\.Pool = "
    r"|TRANSPORT_ALIASES\[|signal\.signal\(number, self\.|environ\.setdefault\(\""
    r"|replace_once\(|sys\.stdout = |worker_shutting_down\.lock = |\.handle_(?:async_)?request = "
    r"|\.create_ssl_context = |loop\.__class__ = |asyncio\.all_tasks = "
    r"|(?:_class|connection)\.(?:urlopen|send|_request) = |logging\.lastResort = "
)


@pytest.fixture
def table(root: Path) -> set[str]:
    page = (root / "docs/internals.md").read_text()
    section = page[page.index("## What is changed process-wide") :].split("\n## ")[0]
    return set(re.findall(r"\| `([\w/]+\.py)` \|", section))


def test_who_reaches_into_others_is_in_the_table(root: Path, table: set[str]) -> None:
    found = {
        file.relative_to(root).as_posix()
        for folder in ("runner", "tasks", "providers")
        for file in (root / folder).rglob("*.py")
        if not file.relative_to(root).as_posix().startswith(("runner/tasks/", "runner/providers/"))
        and REACHES.search(file.read_text())
    }
    assert found == table
