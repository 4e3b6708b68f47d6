"""What the files beside a crew file ask for, and whether this interpreter is that."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from runner.bundles.environment import asked_for, why_not
from runner.core.errors import BadCrew

HERE = ".".join(map(str, sys.version_info[:2]))
SCRIPT = """
    # /// script
    # requires-python = ">=3.11"
    # dependencies = [
    #   "demo==1",
    # ]
    # ///
    print("a crew")
"""


@pytest.fixture(name="asked")
def _asked(tmp_path: Path) -> Any:
    def ask(*, crew: str = "", at: str = "crew.py", bundle: str = "", **beside: str) -> Any:
        for name, text in {at: crew, **beside}.items():
            file = tmp_path / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))
        return asked_for(tmp_path / at, tmp_path, bundle)

    return ask


def test_a_crew_alone_asks_for_nothing(asked: Any) -> None:
    assert asked() is None
    assert asked(**{"pyproject.toml": "[tool.ruff]\nline-length = 120\n"}) is None
    assert asked(**{"requirements.txt": "# nothing yet\n"}) is None


@pytest.mark.parametrize(
    ("files", "named", "lines"),
    [
        ({"requirements.txt": "demo==1  # the old one\n-r more.txt\n", "more.txt": "b\n"}, "requirements.txt", 3),
        ({"pyproject.toml": '[project]\ndependencies = ["demo==1"]\n'}, "pyproject.toml", 1),
        ({"pyproject.toml": '[project]\ndependencies = ["demo==1"]\n', "uv.lock": "version = 1\n"}, "uv.lock", 1),
        (
            {"pyproject.toml": '[project]\ndependencies = ["b"]\n', "requirements.txt": "demo==1\n"},
            "requirements.txt",
            1,
        ),
        ({"crew": SCRIPT, "requirements.txt": "b\n"}, "crew.py", 1),
        ({"at": "src/in/crew.py", "requirements.txt": "demo==1\n"}, "requirements.txt", 1),
    ],
)
def test_what_names_the_packages(asked: Any, files: dict[str, str], named: str, lines: int) -> None:
    found = asked(**files)
    assert (found.file, len(found.lines), found.lines[0]) == (named, lines, "demo==1")
    assert found.digest == asked(**files).digest
    assert why_not(found) == "it needs demo, which is not installed"


def test_the_python_that_is_asked_for(asked: Any) -> None:
    assert asked(crew=SCRIPT).python == ">=3.11"
    assert asked(**{".python-version": "# mine\n3.12\n"}, crew=SCRIPT).python == "3.12"
    assert asked(**{".python-version": f"{HERE}\n"}, crew="").named == ".python-version"


def test_what_is_no_version_is_passed_over(asked: Any) -> None:
    assert asked(**{".python-version": "my-env\n"}) is None
    assert asked(**{".python-version": "my-env\n3.12.1\n"}).python == "3.12.1"


@pytest.mark.parametrize(
    ("version", "suits"),
    [(HERE, True), (f"cpython-{HERE}", True), (">=3.11", True), ("3.1", False), ("pypy3.11", False)],
)
def test_this_python_is_the_one(asked: Any, version: str, suits: bool) -> None:
    assert (why_not(asked(**{".python-version": version})) == "") == suits


def test_what_is_installed_is_enough(asked: Any) -> None:
    assert why_not(asked(**{"requirements.txt": "pydantic>=2\npytest ; python_version < '3'\ncelery[redis]\n"})) == ""
    assert why_not(asked(**{"requirements.txt": "pydantic>=99\n"})).startswith("it needs pydantic>=99, and 2.")
    assert "not installed" in why_not(asked(**{"requirements.txt": "crew-runner[litellm]\n"}))


def test_a_lock_has_the_versions(asked: Any) -> None:
    package = '[[package]]\nname = "pydantic"\nversion = "2.0"\nsource = { registry = "https://pypi.org/simple" }\n'
    project = '[project]\ndependencies = ["pydantic"]\n'
    assert "2.0 is locked" in why_not(asked(**{"pyproject.toml": project, "uv.lock": package}))


def test_what_decides_is_in_the_digest(asked: Any) -> None:
    def digest(**files: str) -> str:
        return str(asked(**files).digest)

    one = digest(**{"requirements.txt": "a\n-r more.txt\n", "more.txt": "b\n"})
    assert one == digest(**{"requirements.txt": "a\n-r more.txt\n", "more.txt": "b\n"}, crew="x = 1", bundle="another")
    assert one != digest(**{"requirements.txt": "a\n-r more.txt\n", "more.txt": "c\n"})
    # A package among the bundle's own files is another one with another bundle.
    local = {"requirements.txt": "./lib\n"}
    assert digest(**local, bundle="one") != digest(**local, bundle="another")


@pytest.mark.parametrize("url", ["https://me:hunter22@host/simple", "https://ghp_0123456789@host/x.git"])
def test_a_login_is_refused_before_anything_is_stored(asked: Any, url: str) -> None:
    with pytest.raises(BadCrew, match="UV_INDEX_URL") as refused:
        asked(**{"requirements.txt": f"--index-url {url}\ndemo\n"})
    assert "hunter22" not in str(refused.value)
    assert asked(**{"requirements.txt": "--index-url https://me:${PASSWORD}@host/simple\ndemo\n"}) is not None


def test_extras_count_but_in_a_project_file(tmp_path: Path) -> None:
    # Given what is installed, and an extra of it that is not
    (tmp_path / "crew.py").write_text("")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["celery[couchbase]"]\n')
    project = asked_for(tmp_path / "crew.py", tmp_path)
    (tmp_path / "requirements.txt").write_text("celery[couchbase]\n")
    listed = asked_for(tmp_path / "crew.py", tmp_path)
    # Then it is looked for in the file that people write themselves, and not in one that templates make
    assert project is not None
    assert listed is not None
    assert why_not(project) == ""
    assert why_not(listed) == "it needs couchbase, which is not installed"
