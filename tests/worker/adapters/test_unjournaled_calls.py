"""Calls of models that go through no transport which is journaled: made, in no account, and told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

CREW = """
    import json, urllib.request
    from crewai import LLM, Agent, BaseLLM, Crew, Task

    class Own(BaseLLM):
        def call(self, messages, *args, **kwargs):
            data = json.dumps({{"model": "m", "messages": messages}}).encode()
            request = urllib.request.Request({url!r} + "/chat/completions", data)
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["choices"][0]["message"]["content"]

    seen = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="none")
    models = {{"own": Own(model="m"), "seen": seen}}
    agents = [Agent(role=name, goal="g", backstory="b", llm=llm) for name, llm in models.items()]
    crew = Crew(
        agents=agents,
        tasks=[Task(name=one.role, description=one.role, expected_output="x", agent=one) for one in agents],
    )
"""


@pytest.mark.timeout(300)
def test_a_run_says_how_many_calls_no_journal_saw(
    crewai_fleet: Any, client: Client, write_crew: Callable[..., Path]
) -> None:
    with ModelServer() as models:
        crewai_fleet.start("--concurrency", "1")
        crew = write_crew(CREW.format(url=models.root + "/v1"))
        done = crewai_fleet.runner("submit", str(crew), "--json")
        told = json.loads(done.stdout)
        assert (told["status"], models.requests, told["ledger"]["paid"]) == ("completed", 2, 1), done.stderr
    events = [one for one in client.run(told["run_id"]).events() if one.type == "task_log"]
    assert [one.fields["task"] for one in events] == ["own"]
    assert "1 call of a model bypassed the journal" in str(events[0].fields)
