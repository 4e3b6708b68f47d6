"""The examples of docs/frameworks.md and of each framework's page: each is whole, and does what the page says; those
of other frameworks than are here are run by ops/compat/quickstarts.py, in environments of their own."""

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runner.testing import Answer, Call, ModelServer

from ...support.soak import in_soak
from .test_kills import pytestmark

__all__ = ["pytestmark"]

COMPAT = Path(__file__).resolve().parents[3] / "ops" / "compat"
HERE = ["Agents of any framework", *in_soak("pydantic-ai", "OpenAI Agents SDK", "LangChain and LangGraph")]


@pytest.fixture(scope="module")
def page() -> Any:
    return _script("page")


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, COMPAT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module, before = importlib.util.module_from_spec(spec), set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(COMPAT)
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    for beside in ({"page", "vendors"} - before) & sys.modules.keys():
        del sys.modules[beside]
    return module


def test_each_example_defines_what_it_uses(page: Any, tmp_path: Path) -> None:
    for number, code in enumerate(page.code_blocks()):
        ast.parse(code)
        (tmp_path / f"example_{number}.py").write_text(code)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F", tmp_path]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_each_example_is_run_where_its_framework_is(page: Any) -> None:
    script, found = _script("quickstarts"), list(page.examples())
    assert {one.title for one in found} == set(script.ON_THE_PAGE)
    # `durable`'s own, which another test runs, is submitted by nobody
    [rest] = set(page.code_blocks()) - {one.code for one in found}
    assert "from runner import durable" in rest
    assert set(script.ON_THE_PAGE.values()) == set(script.PACKAGES) == set(script.TARGETS)


@pytest.mark.parametrize("title", HERE)
def test_an_example_is_done_as_its_page_says(title: str, page: Any, fleet: Any, tmp_path: Path) -> None:
    # Given the file as it stands on the page, and nothing else
    [example] = [one for one in page.examples() if one.title == title]
    (tmp_path / example.file).write_text(example.code)

    def answer(request: Any) -> Answer:
        given = {"trains": {"start": "Berlin", "end": "Rome"}, "get_weather": {"city": "sf"}}
        uses = [Call(name, given[name]) for name in request.tools if not request.results]
        return Answer(calls=uses) if uses else Answer(f"I say: {' '.join(request.results)}")

    with ModelServer(answer) as models:
        there = {"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": "sk-secret", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        fleet.start("--concurrency", "1", "--pool", "prefork", **there)
        # When the page's command is typed
        done = fleet.runner("submit", *example.words, "--json", cwd=tmp_path, **there)
        # Then it is done, and its model and tools were asked
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["result"].startswith("I say: "), told
        assert told["ledger"]["paid"] == models.paid == 1 + ("get_weather" in example.code or "trains" in example.code)
        # And what the page says of looking at it, forking and resuming it can be typed
        for words in page.commands(title):
            done = fleet.runner(*[told["run_id"] if word == "RUN" else word for word in words], cwd=tmp_path, **there)
            assert done.returncode == 0, (words, done.stderr)


def test_the_durable_function_of_the_page_is_one(page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = [one for one in page.code_blocks() if "from runner import durable" in one]
    service = ModuleType("service")
    service.book = lambda train: f"booked {train}"
    monkeypatch.setitem(sys.modules, "service", service)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "docs/frameworks/durable.md", "exec"), names)
    assert names["book"]("EC 85") == "booked EC 85"
