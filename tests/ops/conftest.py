"""The deployment's files, and a crew to run on them."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder."""
    return ROOT


@pytest.fixture(scope="session")
def compat(root: Path) -> Callable[[str], ModuleType]:
    """A script of ops/compat, by its name: made anew each time."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, root / f"ops/compat/{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def small_crew(write_crew: Callable[..., Path]) -> Path:
    """Two tasks, done at once."""
    return write_crew("""
        from runner import Crew, Task

        def first(ctx):
            return "one"

        def second(ctx):
            return ctx.outputs["first"].raw + ", two"

        crew = Crew(name="small", tasks=[Task(name="first", run=first), Task(name="second", run=second)])
    """)


@pytest.fixture
def chaos_here(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """Does what a command of ops/chaos does, in this process, where its workers are forked; its lines."""
    folder = root / "ops" / "chaos"

    def run(command: str, *arguments: str) -> list[str]:
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setattr(sys, "argv", [f"{command}.py", *arguments])
        try:
            code = importlib.import_module(command).main()
        finally:
            for path in folder.glob("*.py"):
                sys.modules.pop(path.stem, None)
        said = capsys.readouterr()
        assert code == 0, said
        return said.out.splitlines()

    return run
