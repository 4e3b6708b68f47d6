"""Hooks, callbacks and middleware are called after a kill as often and with the same as alone, and have effect once."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from runner.adapters.frameworks.plugin import GROUP
from runner.client import Client
from runner.testing import Answer, Call, ModelServer

from .agents import HOOKS, HOOKS_ELSEWHERE
from .test_kills import pytestmark

__all__ = ["pytestmark"]

MODULES = {
    "agent-framework": "agent_framework",
    "agno": "agno",
    "autogen": "autogen_agentchat",
    "google-adk": "google.adk",
    "llama-index": "llama_index",
    "smolagents": "smolagents",
    "strands": "strands",
}
"""What has to be installed for those that are tried in environments of their own."""


def is_there(module: str) -> bool:
    """Whether it is installed: of a namespace, what is in it."""
    package = module.rpartition(".")[0]
    return (not package or is_there(package)) and importlib.util.find_spec(module) is not None


ROWS = [*HOOKS, *(one for one in HOOKS_ELSEWHERE if is_there(MODULES[one]))]


def test_each_adapter_has_an_agent_with_hooks() -> None:
    adapters = {point.load().name for point in entry_points(group=GROUP) if point.value.startswith("runner.")}
    assert adapters == {*HOOKS, *HOOKS_ELSEWHERE}, "give it one in ops/chaos/hook_agents_elsewhere.py"


def digs(request: Any) -> Answer:
    """Two uses side by side, then one."""
    if request.turn == 0:
        return Answer(calls=[Call("look", {"i": 0}), Call("look", {"i": 1})])
    if request.turn == 1:
        return Answer(calls=[Call("look", {"i": 2})])
    last = [Call("final_answer", {"answer": "done"})]
    return Answer(calls=last) if "final_answer" in str(request.body.get("tools")) else Answer("done")


def called(trace: Path) -> tuple[Counter[str], int]:
    """How often each hook was called with what in the last process, and in how many processes."""
    lines = [json.loads(line) for line in Path(f"{trace}.hooks").read_text().splitlines()]
    last = Counter(" ".join(words) for process, *words in lines if process == lines[-1][0])
    return last, len({line[0] for line in lines})


@pytest.mark.parametrize("framework", ROWS)
def test_hooks_are_called_after_a_kill_as_they_are_alone(
    framework: str, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent with hooks, as Python alone runs it
    killed: list[int] = []
    asked: list[list[Any]] = []

    def kill(request: Any) -> Answer:
        if request.turn == 2:
            asked.append([message.get("content") for message in request.body["messages"]])
            if len(asked) == 2:
                killed.extend(worker.children())
                for child in killed:
                    os.kill(child, signal.SIGKILL)
        return digs(request)

    alone, file, trace = tmp_path / "alone.py", tmp_path / "agent.py", tmp_path / "trace"
    code = {**HOOKS, **HOOKS_ELSEWHERE}[framework]
    with ModelServer(kill) as models:
        alone.write_text(code.format(url=models.url, trace=str(tmp_path / "traced"), dies=[]))
        done = subprocess.run([sys.executable, alone], capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr
        # When it is run by a worker whose process is killed at its last call
        file.write_text(code.format(url=models.url, trace=str(trace), dies=[]))
        worker = fleet.start("--concurrency", "1", "--pool", "prefork")
        result = client.submit(file).wait(150)
    # Then the result is the same, and so is what its hooks were called with, and what the model was told
    assert result.outputs == {"main": done.stdout.rstrip("\n")}, result.error
    assert called(trace) == (called(tmp_path / "traced")[0], 2)
    assert killed
    assert asked == [asked[0]] * 3
    # And no tool was used again
    assert Counter(trace.read_text().split()) == Counter((tmp_path / "traced").read_text().split())
