"""A fork from the middle of an agent that is done replays what was recorded by then, and pays only from there."""

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, ModelServer

from ...support.soak import in_soak
from .agents import AGENTS, OUTPUTS
from .test_kills import CALLS, USES, digs, models, pytestmark, written

__all__ = ["models", "pytestmark"]

CALL, USE = "llm_call_completed", "tool_usage_finished"
OTHERS = [one for one in AGENTS if one != "pydantic-ai"]


@pytest.mark.parametrize(
    ("framework", "event"), [("pydantic-ai", CALL), ("langchain", USE), *in_soak(*((one, CALL) for one in OTHERS))]
)
def test_a_fork_from_a_step_of_a_finished_agent_pays_from_there(
    framework: str, event: str, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent that is done, with a checkpoint at each call, or at each use of a tool
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    run = client.submit(written(tmp_path, framework, models), {"prompt": "Dig."}, checkpoint_on=[event])
    assert run.wait(150).status == "completed"
    before = Counter((tmp_path / "trace").read_text().split())
    found = client.checkpoints(run.id)
    assert [one.trigger for one in found] == [event] * (CALLS if event == CALL else USES)
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def kill(request: Any) -> Answer:
        with lock:
            seen[at := len(request.results)] += 1
            first = seen[at] == 1
        for child in worker.children() if first and at == USES else ():
            os.kill(child, signal.SIGKILL)
        return digs(request)

    models.use(kill)
    # When it is forked at the second of them, and its process is killed at the last call
    result = client.fork(run.id, checkpoint=found[1].id, branch="again").wait(150)
    # Then it paid for what came after, once, and for the call that was in flight once more
    assert result.outputs["agent"] == OUTPUTS.get(framework, "done")
    assert dict(seen) == {**dict.fromkeys(range(2, CALLS), 1), USES: 2}
    uses = Counter((tmp_path / "trace").read_text().split()) - before
    assert uses == Counter(map(str, range(1 if event == CALL else 2, USES)))
    # And so does a fork of the fork, from where that went on by itself
    seen.clear()
    models.use(lambda request: seen.update([len(request.results)]) or digs(request))
    own = client.checkpoints(run.id, "again")
    assert len(own) == len(found) - 2
    assert client.fork(run.id, checkpoint=own[0].id).wait(150).outputs["agent"] == OUTPUTS.get(framework, "done")
    assert list(seen) == [USES]
