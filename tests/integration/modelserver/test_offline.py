"""`--offline`: a real model, far too small to be right. Asserted is the shape of what it does, never its prose."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.modelserver import ModelRequest
from runner.modelserver.stubs import offline

pytestmark = pytest.mark.timeout(170)


@pytest.fixture
def environment(fleet: Any, weights: Path) -> Iterator[dict[str, str]]:
    """For workers that use the model; its server is ended with them."""
    yield {"RUNNER_OFFLINE_MODEL": str(weights)}
    told = fleet.folder / "cache" / "offline" / "server.json"
    if told.exists():
        os.kill(json.loads(told.read_text())["pid"], signal.SIGTERM)


def test_two_agents_with_a_tool_and_a_real_model(
    fleet: Any, two_agents: Path, trace: Path, environment: dict[str, str]
) -> None:
    fleet.start("--concurrency", "1", **environment)
    said = fleet.runner("submit", str(two_agents), "--offline", "--json", **environment)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["models"].startswith("OFFLINE: ")
    assert trace.read_text() in ("tool Paris\n", "tool Rome\n")
    assert list(found["outputs"]) == ["fact", "text"]
    assert all(found["outputs"].values())
    ledger = found["ledger"]
    assert (ledger["paid"], ledger["replayed"], ledger["in_doubt"]) == (3, 0, 0)
    assert ledger["prompt_tokens"] > 0
    assert ledger["completion_tokens"] > 0


def test_a_worker_without_the_engine_says_what_to_install(fleet: Any, two_agents: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['xllamacpp'] = None")
    fleet.start("--concurrency", "1", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    said = fleet.runner("submit", str(two_agents), "--offline", "--json")
    assert said.returncode == 1
    error = json.loads(said.stdout)["error"]
    assert "the offline model needs xllamacpp, which is not installed: pip install 'crew-runner[offline]'" in error
    assert "on worker host" in error


def test_runner_offline_says_so_too(fleet: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['xllamacpp'] = None")
    said = fleet.runner("offline", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("error: the offline model needs xllamacpp")


def test_any_client_can_use_it(weights: Path) -> None:
    openai = pytest.importorskip("openai")
    started = subprocess.Popen(
        [sys.executable, "-m", "runner", "offline", "--port", "0"],
        env={**os.environ, "RUNNER_OFFLINE_MODEL": str(weights)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout is not None
    with started, openai.OpenAI(base_url=started.stdout.readline().strip(), api_key="none", timeout=120) as client:
        schema = {"type": "object", "properties": {"title": {"type": "string"}, "n": {"type": "integer"}},
                  "required": ["title", "n"]}  # fmt: skip
        form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
        say = [{"role": "user", "content": "How many legs has an owl?"}]
        answer = client.chat.completions.create(model="any", messages=say, response_format=form, max_tokens=80)
        assert json.loads(answer.choices[0].message.content).keys() == {"title", "n"}
        assert answer.usage.completion_tokens > 0
        started.terminate()
    assert started.returncode == 0


def test_what_the_model_is_shown_of_a_conversation() -> None:
    told = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "How many?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "count"}}]},
        {"role": "tool", "content": "Two."},
    ]
    shown = [message["content"] for message in offline.plain(told)]
    assert shown == ["Be short.", "How many?", "Information: Two.", "Use this information. How many?"]
    long = offline.shortened([{"role": "user", "content": "x" * 9000}, {"role": "user", "content": "y" * 100}], 1000)
    assert [len(message["content"]) for message in long] == [900, 100]


def test_no_tool_twice_and_then_words() -> None:
    tools = [{"function": {"name": name, "parameters": {}}} for name in ("look", "find")]
    used = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look"}}]}

    def left(*messages: Any, **more: Any) -> list[str]:
        body = {"messages": list(messages), "tools": tools, **more}
        return list(offline._tool_to_call(ModelRequest(1, "openai", "/", body)))

    result = {"role": "tool", "content": "seen"}
    assert left() == ["look", "find"]
    assert left(used, result) == ["find"]
    assert left(used, result, used, result) == []
    assert left(tool_choice="none") == []
    assert left(used, result, tool_choice={"function": {"name": "look"}}) == ["look"]


def test_every_text_has_an_end() -> None:
    schema = {"properties": {"title": {"type": "string"}, "all": {"type": "array", "items": {"type": "string"}}}}
    assert offline.bounded(schema) == {
        "properties": {
            "title": {"type": "string", "maxLength": 80},
            "all": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 80}},
        }
    }
