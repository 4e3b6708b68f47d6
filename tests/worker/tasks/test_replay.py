"""An agent that another worker takes up: what is recorded is not asked again, and its requests are not built again."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

pytestmark = pytest.mark.timeout(120)

CREW = """
    from runner import Agent, tool
    from runner.llm.clients.openai import Client

    build = getattr(Client._body, "build", Client._body)
    def body(self, request):
        trace("a request is built")
        return build(self, request)
    body.build = build
    Client._body = body

    @tool
    def fetch(part: int) -> str:
        "Fetches a part."
        trace(f"fetch {part}")
        return f"part {part} " * 500

    agent = Agent(role="digger", llm="openai/gpt-4.1", tools=[fetch])
    crew = Crew(agents=[agent], tasks=[Task(name="dig", description="Dig.", agent=agent)])
"""
CALLS = 5


class Script:
    """So many fetches, then an answer; the call in ``at`` waits until it is ``released``, or is refused."""

    def __init__(self) -> None:
        self.at, self.refused, self.released = CALLS, False, threading.Event()

    def __call__(self, request: Any) -> Any:
        if request.turn == self.at and self.refused:
            return Answer("no", status=401)
        if request.turn == self.at:
            self.released.wait(60)
        return Call("fetch", {"part": request.turn}) if request.turn < CALLS else "Dug."


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def models(script: Script) -> Iterator[ModelServer]:
    with ModelServer(script) as one:
        yield one


def built(trace: Any) -> int:
    """How many requests workers have built."""
    return int(trace.lines().count("a request is built"))


def test_after_a_kill_only_the_call_that_was_out_is_built_and_made_again(
    fleet: Any, client: Client, crew_of: Any, trace: Any, models: ModelServer, script: Script, well_told: Any
) -> None:
    worker = fleet.start("--concurrency", "1", **models.environment)
    handle = client.submit(crew_of(CREW))
    models.wait_for(CALLS + 1)
    worker.kill_group()
    fleet.start("--concurrency", "1", **models.environment)
    models.wait_for(CALLS + 2)
    script.released.set()
    result = handle.wait(60)
    assert (result.status, result.result, result.recoveries) == ("completed", "Dug.", 1), result
    assert (models.paid, built(trace)) == (CALLS + 2, CALLS + 2)
    assert models.log[-1].digest == models.log[-2].digest, "byte for byte"
    ledger = result.ledger
    assert (ledger["paid"], ledger["replayed"], ledger["in_doubt"]) == (CALLS + 1, CALLS, 1)
    assert ledger["prompt_tokens"] + ledger["completion_tokens"] > ledger["replayed_tokens"] > 0
    assert (ledger["tools"]["paid"], ledger["tools"]["replayed"]) == (CALLS, CALLS)
    assert [line for line in trace.lines() if line.startswith("fetch")] == [f"fetch {i}" for i in range(CALLS)]
    well_told(handle)


@pytest.mark.parametrize(
    ("old", "new", "paid", "requests"),
    [
        ("Dig.", "Dig.", 1, 1),
        ('"digger"', '"digger" + ""', 1, CALLS + 1),
        ("Dig.", "Dig deep.", CALLS + 1, CALLS + 1),
        ("Fetches a part.", "Fetches one part.", CALLS + 1, CALLS + 1),
        ('"openai/gpt-4.1"', 'LLM("openai/gpt-4.1", temperature=0.5)', CALLS + 1, CALLS + 1),
    ],
    ids=["nothing changed", "code that asks the same", "prompt", "tool", "model"],
)
def test_what_is_asked_again_when_a_run_is_resumed(
    old: str, new: str, paid: int, requests: int, fleet: Any, client: Client, crew_of: Any, trace: Any,
    models: ModelServer, script: Script,
) -> None:  # fmt: skip
    fleet.start("--concurrency", "1", **models.environment)
    crew: Path = crew_of(CREW.replace("import Agent, tool", "import LLM, Agent, tool"))
    # Given a run whose last call was refused
    script.refused = True
    handle = client.submit(crew)
    assert handle.wait(60).status == "failed"
    models.reset()
    before, script.refused = built(trace), False
    script.released.set()
    # When it is resumed
    code = crew.read_text()
    assert old in code
    crew.write_text(code.replace(old, new))
    result = client.resume(handle.id, accept_code_change=True).wait(60)
    # Then what is asked as it was is not paid again
    assert (result.status, result.result) == ("completed", "Dug."), result
    assert (models.paid, built(trace) - before) == (paid, requests)
