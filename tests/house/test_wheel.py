"""What is built is what is in the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PLACES = {"runner/": "runner/", "tasks/": "runner/tasks/", "providers/": "runner/providers/"}
SHIPPED = (".py", ".lua", ".html", "py.typed")


def build(*arguments: str, cwd: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", *arguments],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


@pytest.fixture(scope="module")
def built(copy_repository) -> Path:
    """The folder with the sdist, the wheel built from it, and ``direct/`` with one built from the checkout."""
    copy, out = copy_repository(), copy_repository().parent
    build("--outdir", str(out), ".", cwd=copy)  # an sdist, and a wheel from the sdist
    build("--wheel", "--outdir", str(out / "direct"), ".", cwd=copy)
    return out


def content(folder: Path) -> dict[str, bytes]:
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def test_the_wheel_holds_the_code_and_nothing_else(built, files, root):
    expected = {}
    for name in files:
        for place, becomes in PLACES.items():
            if name.startswith(place) and name.endswith(SHIPPED) and not (root / name).is_symlink():
                expected[becomes + name.removeprefix(place)] = (root / name).read_bytes()
    found = {name: data for name, data in content(built).items() if ".dist-info/" not in name}
    assert sorted(found) == sorted(expected), "a new package is listed in pyproject.toml, [tool.setuptools]"
    assert found == expected


def test_nothing_that_is_code_stays_behind(files, root):
    """Each file below the three folders is of a kind that the wheel takes; the two links are for tools only."""
    below = [name for name in files if name.startswith(tuple(PLACES)) and not (root / name).is_symlink()]
    odd = [name for name in below if not name.endswith(SHIPPED)]
    assert odd == []


def test_the_wheel_from_the_sdist_is_the_same(built):
    direct = content(built / "direct")
    assert content(built) == direct


def test_the_wheel_says_what_it_is(built):
    found = content(built)
    [info] = {name.split("/")[0] for name in found if ".dist-info/" in name}
    assert "runner = runner.__main__:main" in found[f"{info}/entry_points.txt"].decode()
    assert found[f"{info}/top_level.txt"].decode().split() == ["runner"]
    assert any(name.startswith(f"{info}/licenses/") for name in found)
    metadata = found[f"{info}/METADATA"].decode()
    assert "Name: crew-runner" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_the_wheel_works_beside_a_persons_own_tasks(built, tmp_path):
    """Installed, ``import tasks`` and ``import providers`` mean the person's files, and the command is ours."""
    site = tmp_path / "site"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        archive.extractall(site)
    here = tmp_path / "here"
    here.mkdir()
    (here / "tasks.py").write_text("OWN = 'tasks'\n")
    (here / "providers.py").write_text("OWN = 'providers'\n")
    code = (
        "import tasks, providers, runner, runner.cli, runner.tasks.app, runner.providers.redis.scripts as s;"
        "assert (tasks.OWN, providers.OWN) == ('tasks', 'providers');"
        "assert s.load('claim');"
        "print(runner.__file__, runner.tasks.__file__, runner.providers.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(site)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert all(path.startswith(str(site)) for path in found.stdout.split())


@pytest.mark.parametrize("name", ["tasks", "providers"])
def test_our_folders_refuse_their_bare_names(root, name):
    found = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=root, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last == f"ImportError: import runner.{name}, not {name}: see CONTRIBUTING.md, Layout"
