"""What tools change in the context of their framework is there after a kill, though their uses are not made again."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

from .agents import AGENTS, CONTEXTS
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


def test_a_run_that_failed_of_an_error_of_a_tool_uses_it_again_when_it_is_resumed(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent that is told of one error of its tool, and of which another one ended the run
    code = AGENTS["pydantic-ai"]
    code = code.replace("import os, signal", "import os, signal\nfrom pydantic_ai import ModelRetry")
    code = code.replace(
        '    return f"part', '    refused = open({trace!r}).read().split().count(str(i)) == 1\n    return f"part'
    )
    code = code.replace(
        '    return f"part', "    if i == 0 and refused:\n        raise ModelRetry('once more')\n    return f\"part"
    )
    code = code.replace(
        '    return f"part', "    if i == 1 and refused:\n        raise ValueError('away')\n    return f\"part"
    )

    def asks(request: Any) -> Answer:
        told = [message["content"] for message in request.body["messages"] if message["role"] == "tool"]
        at = sum(text.startswith("part") for text in told)
        return Answer(calls=[Call("look", {"i": at})]) if at < USES else Answer("done")

    trace = tmp_path / "trace"
    with ModelServer(asks) as models:
        file = tmp_path / "agent.py"
        file.write_text(code.format(url=models.url, trace=str(trace), dies=[]))
        fleet.start("--concurrency", "1", "--pool", "prefork")
        run = client.submit(file, {"prompt": "Dig."})
        failed = run.wait(100)
        # When it is resumed
        client.resume(run.id)
        result = run.wait(100)
    # Then the error that it was told of is replayed, and the other one is not
    assert failed.error is not None
    assert "away" in failed.error
    assert result.outputs == {"agent": "done"}, result.error
    assert Counter(trace.read_text().split()) == {"0": 2, "1": 2, "2": 1}
