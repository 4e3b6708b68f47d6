"""A stop reaches an agent of CrewAI in the middle of a model call, and is no failure that it tries to get over."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

pytestmark = pytest.mark.timeout(600)  # ten seconds each where nobody else is at work

CREW = """
    from crewai import LLM, Agent, Crew, Task

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="it writes", llm=llm, max_execution_time={limit})
    crew = Crew(agents=[agent], tasks=[Task(name="a", description="Write.", expected_output="text", agent=agent)])
"""


class Slow(ModelServer):
    """Its answers wait for ``may_answer``."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        super().__init__(self._slowly)

    def _slowly(self, _request: Any) -> str:
        self.may_answer.wait(120)
        return "said"


@pytest.fixture
def models() -> Iterator[Slow]:
    with Slow() as server:
        yield server
        server.may_answer.set()


@pytest.fixture
def crew(write_crew: Callable[..., Path], models: Slow) -> Callable[..., Path]:
    return lambda limit=None: write_crew(CREW.format(url=models.root + "/v1", limit=limit))


@pytest.mark.parametrize("over", [False, True], ids=["within", "over"])
def test_sigterm_in_a_call_of_an_agent(
    over: bool, crewai_fleet: Any, client: Client, crew: Any, models: Slow, eventually: Any
) -> None:
    worker = crewai_fleet.start("--concurrency", "1", "--drain-timeout", "0.3" if over else "60")
    run = crewai_fleet.runner("submit", str(crew()), "--detach").stdout.split()[-1]
    models.wait_for(1, 60)
    worker.terminate()
    if not over:
        models.may_answer.set()
    eventually(lambda: not worker.alive(), within=60, why="the worker ends")
    models.may_answer.set()
    handle = client.run(run)
    assert [one.type for one in handle.events()].count("task_released") == 1, "handed back, not lost"
    crewai_fleet.start("--concurrency", "1")
    result = handle.wait(120)
    assert result.outputs == {"a": "said"}
    found = {name: result.ledger[name] for name in ("paid", "replayed", "in_doubt")}
    assert found == ({"paid": 1, "replayed": 0, "in_doubt": 1} if over else {"paid": 1, "replayed": 1, "in_doubt": 0})
    assert models.requests == found["paid"] + found["in_doubt"]


def test_the_time_of_an_agent_is_up_and_its_call_is_not_paid_again(
    crewai_fleet: Any, client: Client, crew: Any, models: Slow
) -> None:
    crewai_fleet.start("--concurrency", "1")
    run = crewai_fleet.runner("submit", str(crew(limit=8)), "--detach").stdout.split()[-1]
    handle = client.run(run)
    result = handle.wait(120)
    assert (result.status, models.requests) == ("failed", 1), result
    assert "it ran longer than its timeout of 8 s" in (result.error or "")
    models.may_answer.set()
    client.resume(run)
    assert client.run(run).wait(120).outputs == {"a": "said"}
    assert models.requests == 2
