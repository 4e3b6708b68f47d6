"""The same crew file by ``python crew.py`` and on two workers: models are sent the same, and the result is the same."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.testing import ModelServer

pytestmark = pytest.mark.timeout(600)  # half a minute where nobody else is at work

HERE = Path(__file__).parent
CREWS = sorted(one.name for one in (HERE / "crews").iterdir() if (one / "crew.py").exists())
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}

#: What CrewAI's memory says of its records, other ones each time: their ids, and when they were made.
CHANGING = re.compile(r"id=[0-9a-f-]{36}|created=[0-9T:.-]+")


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("crewai_script", HERE / "scripted.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.script


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(_script()) as one:
        yield one


def sent(models: ModelServer) -> dict[str, Counter[str]]:
    """What each crew sent, by hashes."""
    found: dict[str, Counter[str]] = {name: Counter() for name in CREWS}
    for request in models.log:
        _, name, *_, kind = request.path.split("/")
        text = CHANGING.sub("", json.dumps(request.body, sort_keys=True))
        found[name][f"{kind} {hashlib.sha256(text.encode()).hexdigest()}"] += 1
    return found


def traced(folder: Path) -> dict[str, Counter[str]]:
    """What the crews' own code did, by crew."""
    lines = folder.read_text().splitlines() if folder.exists() else []
    return {name: Counter(line for line in lines if line.startswith(f"{name}: ")) for name in CREWS}


def test_the_same_requests_and_the_same_result(
    crewai_fleet: Any, run_crewai: Callable[..., Any], models: ModelServer, tmp_path: Path
) -> None:
    # Given what each crew does in one process
    for place in ("alone", "fleet"):
        shutil.copytree(HERE / "crews", tmp_path / place)
    base = {**os.environ, **models.environment, **QUIET, "MODEL_SERVER": models.root}

    def run(program: str, place: str, **environment: str) -> dict[str, Any]:
        out = tmp_path / f"{place}.json"
        folders = [tmp_path / place / name for name in CREWS]
        done = run_crewai(HERE / program, *folders, out, env={**base, **environment})
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(out.read_text())

    alone = run("reference.py", "alone")
    wanted, did = sent(models), {name: traced(tmp_path / "alone" / name / "trace")[name] for name in CREWS}
    models.reset()

    # When each is submitted to two workers
    environment = {**QUIET, **models.environment, "MODEL_SERVER": models.root, "TRACE": str(tmp_path / "trace")}
    for _ in range(2):
        crewai_fleet.start("--concurrency", "1", wait=False, **environment)
    for worker in crewai_fleet.workers:
        worker.ready(crewai_fleet.starts_within)
    fleet = run("submit.py", "fleet", **crewai_fleet.environment(**environment))

    # Then the models were sent the same, the callbacks saw the same, and the result is the same
    for name, result in fleet.items():
        assert result["status"] == "completed", (name, result)
        outputs = {key: text for key, text in result["outputs"].items() if key not in ("before_kickoff", "planning")}
        outputs.pop("after_kickoff", None)
        assert result["result"] == alone[name]["raw"], name
        assert alone[name]["tasks"] is None or list(outputs.values()) == alone[name]["tasks"], name
    found = sent(models)
    for name in CREWS:
        assert found[name].keys() == wanted[name].keys(), name
        assert found[name] <= wanted[name], name
        spared = wanted[name] - found[name]  # CrewAI has a crew's knowledge embedded again for each task
        assert not spared or (name == "knowing" and all(one.startswith("embeddings") for one in spared)), name
    assert traced(tmp_path / "trace") == did
    for result in fleet.values():
        assert result["ledger"]["in_doubt"] == result["ledger"]["replayed"] == 0
