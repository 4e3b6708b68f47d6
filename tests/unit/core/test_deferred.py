"""Packages whose code runs when something in them is first looked up."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from runner.core import deferred

NAME = "package_of_this_test"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Writes and imports a deferred package, which says in ``ran`` beside it that its code runs."""

    def imported(code: str) -> ModuleType:
        (tmp_path / NAME).mkdir()
        told = f"from pathlib import Path\nwith open({str(tmp_path / 'ran')!r}, 'a') as ran: ran.write('.')\n"
        (tmp_path / NAME / "__init__.py").write_text(told + code)
        (tmp_path / NAME / "part.py").write_text("value = 2\n")
        importlib.invalidate_caches()
        deferred.defer(NAME)
        deferred.defer(NAME)
        return importlib.import_module(NAME)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(deferred, "_names", set[str]())
    yield imported
    for name in [one for one in sys.modules if one.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_its_code_runs_once_when_something_is_looked_up(package: Callable[[str], ModuleType], tmp_path: Path) -> None:
    found = package("value = 1\n")
    assert not (tmp_path / "ran").exists()
    assert importlib.import_module(f"{NAME}.part").value == 2
    assert not (tmp_path / "ran").exists(), "a module of it is there at once"
    assert not hasattr(found, "__wrapped__")
    assert not (tmp_path / "ran").exists(), "of what begins with two underscores only __all__ is its code's"
    assert found.value == 1
    assert "value" in dir(found)
    with pytest.raises(AttributeError, match=f"module '{NAME}' has no attribute 'other'"):
        _ = found.other
    assert (tmp_path / "ran").read_text() == "."


def test_after_an_error_it_runs_again(package: Callable[[str], ModuleType], tmp_path: Path) -> None:
    found = package("if not Path(__file__).with_name('ready').exists(): raise ValueError('not ready')\nvalue = 1\n")
    with pytest.raises(ValueError, match="not ready"):
        _ = found.value
    (tmp_path / NAME / "ready").touch()
    assert found.value == 1
    assert (tmp_path / "ran").read_text() == ".."
