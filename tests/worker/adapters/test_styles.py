"""Whatever way an author lays out a CrewAI project, all of it is done, with the requests that CrewAI alone sends."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.testing import Call, ModelRequest, ModelServer

from ...support.soak import in_soak
from .styles import STYLES
from .test_programs import QUIET

pytestmark = pytest.mark.timeout(600)  # a minute where nobody else is at work

SAMPLE = "tutorial yaml-by-hand flow-project"

ALONE = """
import importlib, json, os, runpy, sys, crewai
from crewai.rag.chromadb import config

children = {}
for number, (folder, alone) in enumerate(json.load(sys.stdin)):
    if not (pid := os.fork()):
        os.environ.update(HOME=f"{folder}-home", CREWAI_STORAGE_DIR=f"{folder}-storage")
        config.DEFAULT_STORAGE_PATH = os.environ["CREWAI_STORAGE_DIR"]
        os.makedirs(os.environ["HOME"])
        os.chdir(folder)
        sys.argv = [alone]
        module, _, name = alone.partition(":")
        sys.path.insert(0, f"{folder}/src" if name else folder)
        if name:
            getattr(importlib.import_module(module), name)()
        else:
            runpy.run_path(alone, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    children[pid] = folder
sys.exit(" ".join(children[pid] for pid, status in (os.wait() for _ in children) if status) or None)
"""

SUBMIT = """
import dataclasses, json, os, sys
from runner.client import Client

def submitted(client, target):
    try:
        return client.submit(target)
    except Exception as error:
        raise AssertionError(target) from error

with Client(os.environ["RUNNER_REDIS_URL"]) as client:
    handles = [submitted(client, one) for one in json.load(sys.stdin)]
    print(json.dumps([dataclasses.asdict(one.wait(400)) for one in handles]))
"""


def _answers(request: ModelRequest) -> Any:
    return Call("look", {"word": "owls"}) if "look" in request.tools and not request.turn else None


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(_answers) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.root + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
        for name, value in QUIET.items():
            monkeypatch.setenv(name, value)
        yield server


def _sent(models: ModelServer) -> dict[str, Counter[str]]:
    """The requests of each project: its agents have its name."""
    found = defaultdict[str, Counter[str]](Counter)
    for request in models.log:
        body = json.dumps(request.body, sort_keys=True)
        # The longest: of two names one may begin the other.
        name = max((one for one in STYLES if f"{one} clerk" in body or f"{one} manager" in body), key=len, default="")
        found[name][body] += 1
    return found


def test_there_are_as_many_as_were_promised() -> None:
    assert len(STYLES) >= 19


@pytest.mark.parametrize("names", [SAMPLE, *in_soak(" ".join(STYLES))])
def test_each_project_is_done_as_by_crewai_alone(
    names: str, crewai_fleet: Any, run_crewai: Callable[..., Any], models: ModelServer, tmp_path: Path
) -> None:
    # Given a project of each style
    styles = {name: STYLES[name] for name in names.split()}
    folders = {name: tmp_path / name for name in styles}
    for name, style in styles.items():
        for file, text in style.files.items():
            place = folders[name] / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text.replace("NAME", name))

    def run(code: str, given: Any, **environment: str) -> str:
        done = run_crewai("-c", code, input=json.dumps(given), env={**os.environ, **environment})
        assert done.returncode == 0, done.stderr[-4000:]
        return str(done.stdout)

    # When Python runs them, and when they are submitted
    run(ALONE, [[str(folders[name]), style.alone] for name, style in styles.items()])
    wanted = _sent(models)
    models.reset()
    crewai_fleet.start("--concurrency", "4")
    targets = [str(folders[name]) + (f"/{one.target}" if one.target != "." else "") for name, one in styles.items()]
    results = json.loads(run(SUBMIT, targets, **crewai_fleet.environment()).splitlines()[-1])
    # Then all are completed, and have sent the same
    assert {name: one["error"] for name, one in zip(styles, results, strict=True)} == dict.fromkeys(styles)
    found = _sent(models)
    assert set(wanted) == set(styles)
    assert {name: len(found[name]) for name in styles} == {name: len(wanted[name]) for name in styles}
    assert [name for name in styles if found[name] != wanted[name]] == []
    assert sum(one["ledger"]["paid"] for one in results) == sum(map(Counter.total, wanted.values()))
