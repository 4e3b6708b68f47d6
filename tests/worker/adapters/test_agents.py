"""An agent of CrewAI without a crew is a run, where its file has nothing else that can be run."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.testing import Call, ModelRequest, ModelServer

CLERK = """
    from crewai import Agent
    from crewai.tools import tool

    @tool
    def read(name: str) -> str:
        "The text of a note."
        with open("read.txt", "a") as file:
            file.write(name)
        return "Owls fly silently."

    clerk = Agent(role="Clerk", goal="Know", backstory="Reads first.", tools=[read])
"""


def answer(request: ModelRequest) -> Any:
    return "Owls." if request.turn else Call("read", {"name": "birds"})


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.root + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
        yield server


def test_an_agent_alone_is_asked_the_prompt(crewai_fleet: Any, models: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(textwrap.dedent(CLERK))
    crewai_fleet.start("--concurrency", "1")
    words = ("submit", "agent.py", "--input", "prompt=What flies?", "--json")
    done = crewai_fleet.runner(*words, cwd=tmp_path, timeout=170)
    told = json.loads(done.stdout)
    assert (told["status"], told["outputs"]) == ("completed", {"agent": "Owls."}), done.stderr
    assert [request.turn for request in models.log] == [0, 1]
    assert "What flies?" in models.log[0].last
    assert told["ledger"]["paid"] == 2
    assert (tmp_path / "read.txt").read_text() == "birds"  # the tool's file, once
