"""Two projects of one user, each with its virtual environment beside its file, on the one embedded server."""

import contextlib
import json
import os
import site
import subprocess
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.client.store import open_store
from runner.testing import eventually

AGENT = """
import library_here
from runner import Crew, Task

assert library_here.part.__name__ == "library_here.part"  # as it is installed, once: it is no module of the project's
crew = Crew(tasks=[Task(name="which", run=lambda ctx: library_here.part.VERSION)])
"""


@dataclass
class Project:
    """A project and its environment, where a library is installed in a version of its own."""

    folder: Path
    settings: dict[str, str]

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command in it, with its Python."""
        return subprocess.Popen(
            [self.folder / ".venv/bin/python", "-m", "runner", *words],
            cwd=self.folder, env=self.settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> str:
        """What a command of it prints."""
        out, said = (process := self.start(*words)).communicate(timeout=120)
        assert process.returncode == 0, said
        return out


@pytest.fixture
def projects(tmp_path: Path, state) -> tuple[Project, Project]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNNER_")}
    own = {"RUNNER_STATE_DIR": str(state.path), "RUNNER_CACHE_DIR": str(tmp_path / "cache"), "RUNNER_REDIS_GRACE": "1"}

    def made(name: str) -> Project:
        folder = tmp_path / name
        venv.create(folder / ".venv", symlinks=True)
        libraries = next((folder / ".venv/lib").glob("python*/site-packages"))
        (libraries / "ours.pth").write_text(f"import site; site.addsitedir({site.getsitepackages()[0]!r})\n")
        (libraries / "library_here").mkdir()
        (libraries / "library_here/__init__.py").write_text("from . import part\n")
        (libraries / "library_here/part.py").write_text(f"VERSION = {name!r}\n")
        (folder / "crew.py").write_text(AGENT)
        return Project(folder, {**kept, **own})

    return made("one"), made("two")


@contextlib.contextmanager
def serving(project: Project, state) -> Iterator[None]:
    """A worker of a project that is there."""
    worker = project.start("worker", "--concurrency", "1")
    try:
        with open_store(state_dir=state.path) as store:
            eventually(store.workers.alive, within=60, why="it is registered")
        yield
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def test_a_run_is_done_with_the_libraries_of_the_environment_that_submitted_it(projects, state, monkeypatch):
    monkeypatch.delenv("RUNNER_REDIS_URL", raising=False)
    one, two = projects
    with serving(one, state):
        for project in (two, one):
            done = json.loads(project.run("submit", "crew.py", "--json"))
            assert (done["status"], done["result"]) == ("completed", project.folder.name)


@pytest.mark.soak
def test_a_run_that_another_environment_waits_for_is_done_with_its_own(projects, state):
    one, two = projects
    run = one.run("submit", "crew.py", "--detach").strip()
    done = json.loads(two.run("wait", run, "--json"))
    assert (done["status"], done["result"]) == ("completed", "one")
