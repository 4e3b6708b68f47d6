"""What the packages that crews are made with say of crew files, without reading of files knowing one by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.adapters.crewai.plugin import PLUGIN
from runner.bundles import frameworks, loader, script
from runner.bundles.frameworks import Framework
from runner.bundles.project import project_at
from runner.core.errors import MissingDependency
from runner.engine import adapters


class Oven(Framework):
    framework = "oven"
    modules = {"oven": "oven[all]", "oven_tools": "oven-tools"}
    entries = ("bake",)
    scripts = ("bake_all",)
    whose_error = "so says the oven"
    data_crew = b"crew = 1"
    heard = 0

    def imported(self) -> None:
        self.heard += 1


@pytest.fixture
def oven(monkeypatch: pytest.MonkeyPatch) -> Oven:
    """The only framework that is installed."""
    monkeypatch.setattr(frameworks, "installed", [found := Oven()])
    return found


def test_the_adapters_that_are_installed_are_asked() -> None:
    assert adapters.plugins() == tuple(frameworks.installed)
    assert PLUGIN in frameworks.installed


def test_a_framework_says_how_its_files_are_read(oven: Oven) -> None:
    assert frameworks.names() == {"oven", "runner"}
    assert frameworks.modules() == {"oven", "oven_tools", "runner"}
    assert frameworks.entries() == {"bake"}
    assert frameworks.scripts() == ("bake_all",)
    assert frameworks.data_crew() == b"crew = 1"
    assert frameworks.whose_error(type("Cake", (), {"__module__": "oven.cakes"})) == " (so says the oven)"
    assert frameworks.whose_error(Oven) == frameworks.whose_error(None) == ""


def test_it_hears_that_a_crew_file_imports_it(oven: Oven) -> None:
    for module in ("json", "oven", "oven_tools"):
        frameworks.imported(module)
    assert oven.heard == 1


def test_what_installs_a_module_of_its_is_said(oven: Oven, tmp_path: Path) -> None:
    for module, says in (("oven_tools.racks", "'oven_tools' (pip install 'oven-tools')"), ("pan", "'pan'")):
        (tmp_path / "crew.py").write_text(f"import {module}")
        with pytest.raises(MissingDependency) as raised:
            loader.load(tmp_path, "crew", key=module)
        assert str(raised.value) == f"crew.py:1: no module named {says}"


@pytest.mark.parametrize(("table", "is_flow"), [("oven", True), ("other", None)])
def test_its_table_declares_a_project(oven: Oven, tmp_path: Path, table: str, is_flow: bool | None) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "cakes"\n[tool.{table}]\ntype = "flow"\n')
    found = project_at(tmp_path)
    assert (found and found.flow) is is_flow


@pytest.mark.parametrize(
    ("version", "says"),
    [((3, 13), "pip install 'crew-runner[crewai]'"), ((3, 14), "CrewAI is not made for Python 3.14: use 3.13")],
)
def test_crewai_is_installed_where_it_can_be(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], says: str
) -> None:
    monkeypatch.setattr("sys.version_info", _Version(version))
    assert PLUGIN.install("crewai") == says


class _Version(tuple[int, int]):
    @property
    def major(self) -> int:
        return self[0]

    @property
    def minor(self) -> int:
        return self[1]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for key in ("oven_tools.racks", "pan"):
        loader.unload(key)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("", ""),
        ("def make(topic): ...\ndef _own(): ...", ""),
        ("def make(topic): ...\nasync def go(days=3, *, pace='slow'): ...\ndef other(): ...", ", as in agent.py:go()"),
        ("def go(): ...\ndef main(*args): ...", ", as in agent.py:main()"),
    ],
)
def test_the_example_of_an_error_is_a_function_of_the_file(code: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(code)
    assert script.example_call(tmp_path / "agent.py") == named
