"""Which other Pythons of a machine the quick tests are run with. The trial itself takes minutes."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pythons(compat: Callable[[str], ModuleType]) -> ModuleType:
    return compat("pythons")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with 3.97 on PATH, 3.98 and 3.99 from pyenv, and a shim of 3.96, which is not installed."""
    for name, says in (
        ("bin/python3.97", "3 97"),
        ("bin/python3.96", ""),
        ("bin/python3.10", "3 10"),
        (f"bin/python3.{sys.version_info[1]}", f"3 {sys.version_info[1]}"),
        ("pyenv/versions/3.98.1/bin/python3.98", "3 98"),
        ("pyenv/versions/3.99.0/bin/python3.99", "3 99"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\necho {says}\ntest -n '{says}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_those_that_are_found(machine: Path, pythons: ModuleType) -> None:
    found = {at: path for at, path in pythons.others().items() if path.is_relative_to(machine)}
    assert list(found) == [(3, 97), (3, 98), (3, 99)]


@pytest.mark.parametrize(
    ("there", "passes", "code", "tried"),
    [(True, True, 0, ["python3.99"]), (True, False, 1, ["python3.99"]), (False, False, 0, [])],
)
def test_what_comes_of_it(
    there: bool, passes: bool, code: int, tried: list[str],
    machine: Path, pythons: ModuleType, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked: list[Path] = []
    monkeypatch.setattr(pythons, "made", lambda python, _: python if there else None)
    monkeypatch.setattr(pythons, "passes", lambda python: asked.append(python) or passes)
    assert pythons.main(["--newest"]) == code
    assert [one.name for one in asked] == tried


def test_the_oldest_is_the_one_that_the_package_asks_for(pythons: ModuleType) -> None:
    assert 'requires-python = ">={}.{}"'.format(*pythons.OLDEST) in (ROOT / "pyproject.toml").read_text()
