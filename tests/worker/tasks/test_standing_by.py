"""A worker that stands by takes agents over while it still imports their model's client: their calls are journaled.

It is started afresh. What other workers of these tests are forked of has imported the clients already.
"""

import json
import subprocess
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client, prepare
from runner.testing import ModelServer
from runner.testing import fleet as testing_fleet

pytestmark = pytest.mark.timeout(120)

AGENTS = 4

CREW = """
    from runner import Agent

    agent = Agent(role="writer {n}", llm="openai/m")
    crew = Crew(agents=[agent], tasks=[Task(name="write", description="Write number {n}.", agent=agent)])
"""

IMPORTS_SLOWLY = """
    import time
    from importlib.machinery import SourceFileLoader
    from pathlib import Path

    execute = SourceFileLoader.exec_module

    def slowly(loader, module):
        execute(loader, module)
        if module.__name__ in ("httpx", "httpx2"):
            Path(__file__).with_name("importing").touch()
            while not Path(__file__).with_name("go").exists():
                time.sleep(0.01)

    SourceFileLoader.exec_module = slowly
"""
"""What an interpreter does as it starts: the library of the clients' transports is imported when the test says so."""


def test_its_calls_are_in_the_ledger(fleet: Any, client: Client, crew_of: Any, eventually: Any, tmp_path: Path) -> None:
    (beside := tmp_path / "beside").mkdir()
    answers = threading.Event()
    with ModelServer(lambda _: "Done." if answers.wait(60) else "") as models:
        # Given a worker that has agents in flight, and another that is just importing what their client is made of
        worker = fleet.start("--pool", "shared", **models.environment)
        prepared = prepare(f"{crew_of(CREW)}:crew")
        runs = [client.submit(prepared, {"n": str(n)}) for n in range(AGENTS)]
        models.wait_for(AGENTS, 60)
        client.store.workers.clients(["openai"], 60)  # as it says itself every ten seconds
        (beside / "sitecustomize.py").write_text(textwrap.dedent(IMPORTS_SLOWLY))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(testing_fleet, "launch", subprocess.Popen)
            other = fleet.start("--pool", "shared", **models.environment, PYTHONPATH=str(beside)).about()["id"]
        eventually((beside / "importing").exists, why="it imports what others use")
        # When it takes all of them over, and has it only then
        worker.kill_group()
        eventually(lambda: client.store.workers.claimed(other) == AGENTS, within=60, why="it has begun with all")
        (beside / "go").touch()
        models.wait_for(2 * AGENTS, 60)
        answers.set()
        assert [run.wait(60).status for run in runs] == ["completed"] * AGENTS
        requests = models.summary()["requests"]
    # Then the ledger has as many calls as the model
    ledgers = [json.loads(fleet.runner("show", run.id, "--json").stdout)["ledger"] for run in runs]
    assert [(ledger["paid"], ledger["in_doubt"]) for ledger in ledgers] == [(1, 1)] * AGENTS
    assert requests == 2 * AGENTS
