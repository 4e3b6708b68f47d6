"""The script that runs CrewAI's own tests against ours: what it changes in them, and its table."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script(compat: Callable[[str], ModuleType]) -> ModuleType:
    return compat("crewai_tests")


def test_only_imports_are_changed(script: Any) -> None:
    theirs = 'import crewai\nfrom crewai.flow import x\n@patch("crewai.events.y")\ndef test(): assert "a crewai b"\n'
    ours = 'import runner\nfrom runner.flow import x\n@patch("runner.events.y")\ndef test(): assert "a crewai b"\n'
    assert script.ours(theirs) == ours


def test_the_table_has_each_file_once_with_its_counts(script: Any) -> None:
    rows = script.table()
    assert len(rows) == len(script.TABLE.read_text().splitlines()) > 50
    assert all(0 <= row.passed <= row.tests for row in rows.values())
    assert sum(row.tests for row in rows.values() if row.quick) > 300
    assert list(rows) == sorted(rows)


THEIRS = """
from crewai import Crew, Task
from crewai.nowhere import Missing


def test_with_what_is_there():
    assert Crew(tasks=[Task(run=lambda ctx: "owls")]).kickoff().raw == "owls"


def test_with_what_is_not():
    Missing()
"""


def test_fewer_that_pass_are_an_error(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_it.py").write_text(THEIRS)
    table = tmp_path / "table.txt"
    table.write_text("1/2 test_it.py quick\n")
    monkeypatch.setattr(script, "TABLE", table)
    ran: list[int] = []
    monkeypatch.setattr(script, "ran", lambda tests, files: ran.append(1) or dict.fromkeys(files, (1, 2)))
    assert script.main(["--tests", str(tmp_path), "--quick", "--write"]) == 0
    table.write_text("2/2 test_it.py quick\n")
    assert script.main(["--tests", str(tmp_path), "--quick"]) == 1
    assert len(ran) == 3  # it was tried once more
    assert "1 of 2    test_it.py FEWER THAN BEFORE" in capsys.readouterr().out


def test_a_name_that_is_not_ours_fails_the_tests_that_use_it(script: Any, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(THEIRS)
    assert script.ran(tmp_path, ["test_it.py"]) == {"test_it.py": (1, 2)}


def test_where_no_index_is_it_says_so(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(script.subprocess, "run", lambda *_, **__: failed)
    assert script.main(["--quick"]) == 0
    assert capsys.readouterr().out == "no package index gives the source of CrewAI: its tests were not tried\n"
