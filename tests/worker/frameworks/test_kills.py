"""Agents of other frameworks, submitted as their authors wrote them: what dies is paid for once more at most."""

import importlib.util
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

from .agents import AGENTS, OUTPUTS

IS_INSTALLED = all(importlib.util.find_spec(name) for name in ("pydantic_ai", "agents", "langchain_openai"))
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not IS_INSTALLED and not os.environ.get("RUNNER_TEST_ALL"), reason="the frameworks are missing"),
]
USES = 3
CALLS = USES + 1


def digs(request: Any) -> Answer:
    """Has three things looked at, one after another."""
    at = len(request.results)
    return Answer(calls=[Call("look", {"i": at})]) if at < USES else Answer("done")


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(digs) as one:
        yield one


def written(folder: Path, framework: str, models: ModelServer, *, dies: bool = False) -> Path:
    """Its agent. Its tool kills its process at the first use of the thing in the middle, if it ``dies``."""
    file = folder / "agent.py"
    file.write_text(AGENTS[framework].format(url=models.url, trace=str(folder / "trace"), dies=[1] if dies else []))
    return file


@pytest.mark.parametrize("framework", AGENTS)
def test_a_kill_at_a_call_and_at_a_use_costs_those_two(
    framework: str, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent of which a tool kills its process at one use, and a model that does at one call
    file = written(tmp_path, framework, models, dies=True)
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def kill(request: Any) -> Answer:
        at = len(request.results)
        with lock:
            seen[at] += 1
            first = seen[at] == 1
        for child in worker.children() if first and at == USES else ():
            os.kill(child, signal.SIGKILL)
        return digs(request)

    models.use(kill)
    # When it is run
    result = client.submit(file, {"prompt": "Dig."}).wait(150)
    # Then nothing else was done twice, and the account says what was
    assert result.outputs["agent"] == OUTPUTS.get(framework, "done")
    assert dict(seen) == {**dict.fromkeys(range(CALLS), 1), USES: 2}
    assert Counter((tmp_path / "trace").read_text().split()) == {"0": 1, "1": 2, "2": 1}
    found = result.ledger
    assert (found["paid"], found["in_doubt"]) == (CALLS, 1)
    assert (found["tools"]["paid"], found["tools"]["in_doubt"]) == (USES, 1)
    assert list(found["by_tool"].values()) == [found["tools"]]


def test_a_client_that_is_kept_for_the_process_serves_each_task(
    models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a framework that keeps one client, whose connections belong to the event loop of the first task
    code = AGENTS["openai-agents"].format(url=models.url, trace=str(tmp_path / "trace"), dies=[])
    code = code.replace("model=model", 'model="gpt-4o-mini"') + 'set_default_openai_api("chat_completions")\n'
    file = tmp_path / "agent.py"
    file.write_text(code.replace("import Agent,", "import Agent, set_default_openai_api,"))
    kept = {"OPENAI_BASE_URL": models.url, "OPENAI_API_KEY": "sk-secret"}
    fleet.start("--concurrency", "1", "--pool", "prefork", **kept)
    # And a script that leaves the loop open in which it ran its agent
    (quick := tmp_path / "quick.py").write_text(
        "from agents import Agent, Runner, set_default_openai_api\n"
        'set_default_openai_api("chat_completions")\n'
        'print(Runner.run_sync(Agent(name="it", model="gpt-4o-mini"), "Dig.", max_turns=9).final_output)\n'
    )
    # When they are run one after another in one process
    models.use(lambda request: digs(request) if request.tools else Answer("done"))
    found = [client.submit(quick).wait(100), *(client.submit(file, {"prompt": "Dig."}).wait(100) for _ in range(2))]
    # Then each of them is
    assert [list(result.outputs.values()) for result in found] == [["done"]] * 3, [result.error for result in found]
