"""Forks of crews of CrewAI do again what used what they change, and nothing else; what failed goes on."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

pytestmark = pytest.mark.timeout(400)

CREW = """
    from pathlib import Path
    from crewai import LLM, Agent, Crew, Task
    from pydantic import BaseModel

    class Fact(BaseModel):
        title: str
        score: int

    def about(output):
        Path({folder!r}, "seen").write_text(f"{{first.output.pydantic.title}}, {{second.output.raw}}")

    def allowed(output):
        return (True, output) if Path({folder!r}, "allowed").exists() else (False, "not" + chr(10) + "allowed")

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="b", llm=llm)
    common = {{"expected_output": "text", "agent": agent}}
    first = Task(name="first", description="first of {{x}}", output_pydantic=Fact, **common)
    second = Task(name="second", description="second", context=[first], **common)
    third = Task(name="third", description="third of {{y}}", context=[], **common)
    looking = Task(name="looking", description="looking", context=[], callback=about, **common)
    last = Task(name="last", description="last", guardrail=allowed, guardrail_max_retries=0, context=[third], **common)
    crew = Crew(agents=[agent], tasks=[first, second, third, looking, last])
"""


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def asked(models: ModelServer) -> list[str]:
    """Of which tasks the models were asked since this was last asked."""
    found = [request.last.split("Current Task: ")[1].split()[0] for request in models.log]
    models.reset()
    return found


def test_a_failed_run_goes_on_and_forks_do_only_what_they_have_to(
    write_crew: Callable[..., Path], models: ModelServer, crewai_fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given a run whose last task does not pass its guardrail
    crew = write_crew(CREW.format(folder=str(tmp_path), url=models.url))
    crewai_fleet.start("--concurrency", "1")
    done = crewai_fleet.runner("submit", str(crew), "--json", "--input", "x=owls", "--input", "y=mice")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert said["status"] == "failed"
    assert "failed guardrail validation after 0 retries. Last error: not allowed" in said["error"]
    assert "\n" not in said["error"]
    assert "secret" not in done.stdout + done.stderr
    assert asked(models) == ["first", "second", "third", "looking", "last"]
    assert (tmp_path / "seen").read_text() == f"demo, {said['outputs']['second']}"

    # When it may pass, and is resumed: then what was recorded is not asked again
    (tmp_path / "allowed").touch()
    run = client.resume(said["run_id"]).wait(120)
    assert (run.status, run.ledger["in_doubt"]) == ("completed", 0), run
    assert asked(models) == []

    # When the first output is edited: then what was told of it is done again, and what looked at it; and no more
    edited = client.fork(run.run_id, edits={"first": {"title": "other", "score": 2}}, branch="edited")
    assert edited.wait(120).status == "completed"
    assert asked(models) == ["second", "looking"]
    assert (tmp_path / "seen").read_text() == f"other, {edited.result().outputs['second']}"

    # When an input differs: then the task with the input in its words is done again, and what was told of that
    assert client.fork(run.run_id, inputs={"y": "voles"}, branch="voles").wait(120).status == "completed"
    assert asked(models) == ["third", "last"]
    diff = client.diff(run.run_id, "edited", "voles").to_dict()
    assert {one["task"] for one in diff["tasks"]} >= {"first", "second", "third", "last"}
