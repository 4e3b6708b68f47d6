"""The functions that take a path, wrapped: what they cost, and that they are as they were."""

import builtins
import os
import shutil
import sqlite3
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import Crew, Task
from runner.bundles import relative_paths
from runner.bundles.isolation import PREFIX
from runner.core.errors import RelativePath


@pytest.fixture
def installed() -> Iterator[None]:
    undo = relative_paths.install()
    yield
    undo()


def of_a_crew(code: str) -> types.ModuleType:
    module = types.ModuleType(f"{PREFIX}{'0' * 16}.crew")
    exec(compile(code, "crew.py", "exec"), vars(module))
    return module


def test_all_is_as_it_was_when_it_is_undone() -> None:
    names = ("open", "stat", "getcwd", "rename", "symlink")
    before = [builtins.open, sqlite3.connect, *(getattr(os, name) for name in names)]
    relative_paths.install()()
    assert [builtins.open, sqlite3.connect, *(getattr(os, name) for name in names)] == before


def test_only_a_crews_code_in_a_task_is_refused(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    crew = of_a_crew("import os\ndef looks(): return os.path.exists('data')")
    assert crew.looks() is False
    noted = relative_paths.refuse()
    try:
        with pytest.raises(RelativePath, match=r"^the relative path 'data' \(crew.py:2\): relative paths do not work"):
            crew.looks()
        assert len(noted) == 1
        assert not Path("data").exists(), "not the worker's own"
        with relative_paths.allowed():
            assert crew.looks() is False
    finally:
        relative_paths._refused.set(None)


def test_a_library_may_look_and_not_list(installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    library = types.ModuleType("some_library")
    exec("import os\ndef looks(): return os.path.exists('.env')\ndef lists(): return os.listdir('data')", vars(library))
    crew = of_a_crew("def call(function): return function()")
    relative_paths.refuse()
    try:
        assert crew.call(library.looks) is False
        with pytest.raises(RelativePath):
            crew.call(library.lists)
    finally:
        relative_paths._refused.set(None)


def test_what_asks_whether_a_function_can_do_something_is_told_so(installed: None, tmp_path: Path) -> None:
    assert os.stat in os.supports_dir_fd
    assert os.utime in os.supports_follow_symlinks
    (tmp_path / "a").touch()
    shutil.copy2(tmp_path / "a", tmp_path / "b", follow_symlinks=False)

    class Holder:
        lists = os.listdir

    assert sorted(Holder().lists(tmp_path)) == ["a", "b"]


def test_a_step_makes_no_call_more(installed: None) -> None:
    called: list[str] = []

    def steps(ctx) -> str:
        def profile(frame: types.FrameType, event: str, arg: object) -> None:
            if event == "call" and frame.f_globals.get("__name__") == relative_paths.__name__:
                called.append(frame.f_code.co_name)

        sys.setprofile(profile)
        try:
            for number in range(100):
                ctx.step(f"s{number}", int)
        finally:
            sys.setprofile(None)
        return "done"

    assert Crew(tasks=[Task(name="a", run=steps)]).kickoff().raw == "done"
    assert called == []
