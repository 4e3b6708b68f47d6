"""What tools change in the context of their framework is there after a kill, though their uses are not made again."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

from .agents import CONTEXTS
from .test_kills import USES, digs, pytestmark

__all__ = ["pytestmark"]


@pytest.mark.parametrize("framework", CONTEXTS)
def test_what_a_tool_changed_in_its_context_is_there_after_a_kill(
    framework: str, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent whose tool counts in the framework's context, and whose process is killed at its last call
    killed: list[int] = []

    def kill(request: Any) -> Any:
        if len(request.results) == USES and not killed:
            killed.extend(worker.children())
            for child in killed:
                os.kill(child, signal.SIGKILL)
        return digs(request)

    trace = tmp_path / "trace"
    with ModelServer(kill) as models:
        file = tmp_path / "agent.py"
        file.write_text(CONTEXTS[framework].format(url=models.url, trace=str(trace), dies=[1]))
        worker = fleet.start("--concurrency", "1", "--pool", "prefork")
        # When it is run
        result = client.submit(file).wait(150)
        told = [message["content"] for message in models.log[-1].body["messages"] if message["role"] == "tool"]
    # Then it counted all, and each use was made once, but the one that killed its process
    assert result.outputs == {"main": "done [0, 1, 2]"}, result.error
    assert told == ["paid [0]", "paid [0, 1]", "paid [0, 1, 2]"]
    assert Counter(trace.read_text().split()) == {"0": 1, "1": 2, "2": 1}
