"""Tasks of CrewAI's crews each have a process of their own, from a worker that has imported CrewAI before."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

CREW = """
    import os
    from crewai import LLM, Agent, Crew, Task

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="it writes", llm=llm)
    seen = []

    def note(output):
        with open({log!r}, "a") as out:
            out.write(f"{{os.getpid()}} {{len(seen)}}" + chr(10))
        seen.append(output.raw)

    crew = Crew(agents=[agent], tasks=[
        Task(name=name, description=f"Write about {{name}}.", expected_output="text", agent=agent, callback=note)
        for name in ("one", "two", "three")
    ])
"""


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def crew(write_crew: Callable[..., Path], models: ModelServer, tmp_path: Path) -> Path:
    return write_crew(CREW.format(url=models.root + "/v1", log=str(tmp_path / "log")))


def test_a_crew_of_crewai_runs_as_it_is(crewai_fleet: Any, client: Client, crew: Path, tmp_path: Path) -> None:
    crewai_fleet.start("--concurrency", "2")
    done = crewai_fleet.runner("submit", str(crew), "--json")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "log").read_text().splitlines()) == 3
