"""Clients on each transport, in workers that are killed at each of their calls: in flight, and after the answer."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

CALLS = 4
CREW = """
from runner import Crew, Task

URL = {url!r}


def question(text, **more):
    return dict({{"model": "gpt-4o", "messages": [{{"role": "user", "content": text}}]}}, **more)


def pieces(lines):
    import json
    found = [json.loads(one[5:]) for one in lines if one.startswith(b"data:") and b"[DONE]" not in one]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in found if one["choices"])

{ask}

def all_of_them(ctx):
    return " ".join(ask(str(n)) for n in range({calls}))


crew = Crew(tasks=[Task(name="all", run=all_of_them)])
"""
CLIENTS = {
    "requests": """
def ask(text):
    import requests
    said = requests.post(URL + "/chat/completions", json=question(text), timeout=60)
    return said.json()["choices"][0]["message"]["content"]
""",
    "requests, streamed": """
def ask(text):
    import requests
    with requests.post(URL + "/chat/completions", json=question(text, stream=True), stream=True, timeout=60) as said:
        return pieces(said.iter_lines())
""",
    "aiohttp": """
def ask(*texts):
    import aiohttp, asyncio
    async def one(session, text):
        async with session.post(URL + "/chat/completions", json=question(text)) as said:
            return (await said.json())["choices"][0]["message"]["content"]
    async def all_of_them():
        async with aiohttp.ClientSession() as session:
            return " ".join([await one(session, text) for text in texts])
    return asyncio.run(all_of_them())
""",
    "aiohttp, streamed": """
def ask(text):
    import aiohttp, asyncio
    async def one():
        async with aiohttp.ClientSession() as session:
            async with session.post(URL + "/chat/completions", json=question(text, stream=True)) as said:
                return pieces([line async for line in said.content])
    return asyncio.run(one())
""",
    "urllib3": """
def ask(text):
    import urllib3
    said = urllib3.PoolManager().request("POST", URL + "/chat/completions", json=question(text))
    return said.json()["choices"][0]["message"]["content"]
""",
}


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """Answers ``<what was asked>``, and counts."""
    with ModelServer(lambda request: f"<{request.text}>") as one:
        yield one


@pytest.fixture(params=CLIENTS)
def crew(request: Any, write_crew: Callable[..., Path], models: ModelServer) -> Path:
    return write_crew(CREW.format(url=models.url, ask=CLIENTS[request.param], calls=CALLS))


def test_a_kill_in_flight_at_each_call_costs_that_call(
    crew: Path, models: ModelServer, fleet: Any, client: Client
) -> None:
    # Given a model that kills who asks it, the first time that it is asked something
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def kill(request: Any) -> str:
        with lock:
            seen[request.text] += 1
            first = seen[request.text] == 1
        for child in worker.children() if first else ():
            os.kill(child, signal.SIGKILL)
        return f"<{request.text}>"

    models.use(kill)
    # When a task makes its calls
    result = client.submit(crew).wait(100)
    # Then each is made once more, and counted
    assert result.outputs == {"all": "<0> <1> <2> <3>"}, result.error
    assert dict(seen) == dict.fromkeys(map(str, range(CALLS)), 2)
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (CALLS, CALLS)


@pytest.mark.parametrize(
    ("point", "again"), [("step recorded, task not ended", 0), ("model answered, not recorded", 1),
                         ("model call noted, not sent", 0)],
)  # fmt: skip
def test_a_kill_after_the_answer_costs_what_was_not_recorded(
    point: str, again: int, crew: Path, models: ModelServer, fleet: Any, client: Client, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "1", "--pool", "prefork", RUNNER_CRASH_AT=f"{point}:{tmp_path / 'flag'}")
    result = client.submit(crew).wait(100)
    assert (tmp_path / "flag").exists()
    assert result.outputs == {"all": "<0> <1> <2> <3>"}, result.error
    assert models.paid == CALLS + again
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (CALLS, again)
