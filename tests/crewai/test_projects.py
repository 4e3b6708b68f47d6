"""Projects as CrewAI's own commands make them, and folders from before there were any, run as they are."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.testing import ModelServer

CREATE = "import sys; from crewai_cli.cli import crewai; sys.argv[0] = 'crewai'; crewai()"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.root + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
        yield server


@pytest.fixture
def create(crewai_fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``crewai create KIND NAME``, which asks nothing and needs no network."""
    monkeypatch.chdir(tmp_path)  # a new flow writes where its worker runs

    def run(kind: str, name: str, *more: str) -> Path:
        quiet = {"CREWAI_DMN": "1", "CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_DISABLE_VERSION_CHECK": "true"}
        subprocess.run(
            [crewai_fleet.python, "-c", CREATE, "create", kind, name, *more],
            cwd=tmp_path, env={**os.environ, **quiet}, check=True, capture_output=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return tmp_path / name

    return run


@pytest.mark.parametrize(
    ("kind", "more", "inputs", "tasks"),
    [
        ("crew", ["--classic"], ["topic=tea", "current_year=2026"], ["research_task", "reporting_task"]),
        ("crew", [], [], ["research_task"]),
        ("flow", [], [], ["plan_content", "generate_content", "save_content"]),
    ],
    ids=["crew", "crew-as-data", "flow"],
)
def test_a_new_project_runs_as_it_is(
    crewai_fleet: Any,
    create: Callable[..., Path],
    models: ModelServer,
    kind: str,
    more: list[str],
    inputs: list[str],
    tasks: list[str],
) -> None:
    project = create(kind, "newest", *more)
    crewai_fleet.start("--concurrency", "1", wait=False)
    crewai_fleet.start("--concurrency", "1", wait=False)
    given = [word for one in inputs for word in ("--input", one)]
    done = crewai_fleet.runner("submit", str(project), *given, "--json", cwd=project, timeout=170)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], list(told["outputs"])) == ("completed", tasks)
    assert told["ledger"]["paid"] == models.paid > 0
