"""A person's word in CrewAI's flows: models are sent the same as by ``python main.py``, and what is learnt is kept."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.testing import ModelRequest, ModelServer

FLOW = """
from crewai.flow import Flow, human_feedback, listen, start


class Writing(Flow):
    @start()
    @human_feedback(message="The plan?", learn=True, llm="openai/gpt-4o-mini")
    def plan(self):
        return "a plan"

    @listen(plan)
    @human_feedback(message="Good?", emit=["approved", "rejected"], learn=True, llm="openai/gpt-4o-mini")
    def review(self, said):
        self.remember(["one thing", "another thing"])  # in the background
        return said.output + " made"

    @listen("approved")
    def publish(self, said):
        return f"published {said.output}: {said.feedback}"

    @listen("rejected")
    def drop(self, said):
        return f"dropped {said.output}: {said.feedback}"


if __name__ == "__main__":
    print("gave", Writing().kickoff())
"""
QUIET = {"CREWAI_TRACING_ENABLED": "false", "CREWAI_DISABLE_TELEMETRY": "true"}
CHANGING = re.compile(r"id=[0-9a-f-]{36}|created=[0-9T:.-]+")  #: what memory says of its records
ANSWERS = ("shorter sentences", "approved")


def _script(request: ModelRequest) -> Any:
    """The second answer means the other label: what a model says counts."""
    properties = (request.schema or {}).get("properties", {})
    if "outcome" in properties:
        return json.dumps({"outcome": "rejected"})
    if "lessons" in properties:
        return json.dumps({"lessons": ["Write shorter sentences."]})
    return json.dumps({"improved_output": "better"}) if "improved_output" in properties else None


def _sent(models: ModelServer) -> Counter[str]:
    return Counter(f"{one.path} {CHANGING.sub('', json.dumps(one.body, sort_keys=True))}" for one in models.log)


def test_the_same_requests_for_a_persons_word(
    crewai_fleet: Any, run_crewai: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "flow" / "main.py"
    file.parent.mkdir()
    file.write_text(FLOW)
    told: dict[str, Any] = {}
    for place in ("alone", "fleet"):
        with ModelServer(_script) as models:
            for name, value in models.environment.items():
                monkeypatch.setenv(name, value)
            if place == "alone":
                monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "storage"))
                done = run_crewai(file, input="\n".join(ANSWERS) + "\n", env={**os.environ, **QUIET})
                result = done.stdout.rpartition("gave ")[2].strip()
                monkeypatch.delenv("CREWAI_STORAGE_DIR")
            else:
                crewai_fleet.start("--concurrency", "1")
                answered = crewai_fleet.runner("submit", str(file), "--json")
                run = json.loads(answered.stdout)["run_id"]
                for answer in ANSWERS:
                    assert answered.returncode == 5, answered.stderr
                    answered = crewai_fleet.runner("answer", run, "--text", answer, "--json")
                result = json.loads(answered.stdout)["result"]
            told[place] = (result, _sent(models))
    assert told["fleet"] == told["alone"]
    assert (
        told["fleet"][0] == "dropped better: approved"
    )  # what was learnt of the first answer changed the second output
