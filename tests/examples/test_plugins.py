"""The example of a package that adds a kind of crew, a provider and a verb: installed, and used by real commands."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runner.testing import Fleet

EXAMPLE = Path(__file__).parents[2] / "examples/plugins/shell"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, str]:
    """The environment of a process that has it."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--skip-dependency-check"]
    subprocess.run([*command, "--outdir", folder, folder / "source"], check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:  # there may be no pip here
        archive.extractall(folder / "site")
    return {**os.environ, "PYTHONPATH": str(folder / "site"), "XDG_STATE_HOME": str(folder)}


def ran(installed, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=installed, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


def test_it_is_short():
    lines = sum(len(file.read_text().splitlines()) for file in EXAMPLE.rglob("*") if file.suffix in (".py", ".toml"))
    assert lines < 200


def test_its_crews_run_on_a_worker(installed, tmp_path, server):
    (tmp_path / "crew.py").write_text(
        "from crew_runner_shell import ShellCrew\n\ncrew = ShellCrew(first='echo one', then='echo two >&1')\n"
    )
    with Fleet(server.url) as fleet:
        fleet.settings = {"PYTHONPATH": installed["PYTHONPATH"]}
        fleet.start("--concurrency", "1")
        named = {**installed, "RUNNER_REDIS_URL": server.url}
        done = ran(named, sys.executable, "-m", "runner", "submit", "crew.py", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"first": "one", "then": "two"}
    counted = ran(installed, sys.executable, "-m", "runner", "busy", "--redis-url", server.url, cwd=tmp_path)
    assert (counted.returncode, counted.stdout) == (0, "0\n"), counted.stderr
    assert "busy" in ran(installed, sys.executable, "-m", "runner", "--help", cwd=tmp_path).stdout


def test_its_provider_keeps_checkpoints(installed, tmp_path):
    code = """
from runner import CheckpointConfig, Crew, Task

config = CheckpointConfig(location="scratch://mine", on_events=["task_completed"])
Crew(tasks=[Task(name="a", run=lambda ctx: "x")], checkpoint=config).kickoff()
"""
    done = ran({**installed, "TMPDIR": str(tmp_path)}, sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "scratch-checkpoints/mine").rglob("*.json"))) == 1


def test_a_crew_of_it_is_refused_where_it_is_not_installed(tmp_path):
    (tmp_path / "crew.py").write_text("from crew_runner_shell import ShellCrew\n\ncrew = ShellCrew(a='true')\n")
    done = ran(dict(os.environ), sys.executable, "-m", "runner", "submit", "crew.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "crew_runner_shell" in done.stderr
