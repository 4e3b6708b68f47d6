"""`--demo`: a crew of agents without a key; it says what it is wherever one looks."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.core.errors import UsageError
from runner.modelserver import ModelRequest
from runner.modelserver.stubs import demo, elsewhere, using

WORD = "DEMO: the answers come from a script that is built in, not from a model"


def test_a_crew_of_agents_runs_without_a_key(fleet: Any, two_agents: Path, trace: Path) -> None:
    fleet.start("--concurrency", "1")
    said = fleet.runner("submit", str(two_agents), "--demo", "--json", RUNNER_DEMO_DELAY="0")
    assert said.returncode == 0, said.stderr
    assert said.stderr.splitlines()[0] == WORD
    found = json.loads(said.stdout)
    assert found["models"] == WORD
    assert [text.split()[0] for text in found["outputs"].values()] == ["[DEMO]", "[DEMO]"]
    assert "Paris has 2.1 million people." in found["outputs"]["fact"]
    assert trace.read_text() == "tool Paris\n"
    assert (found["ledger"]["paid"], found["ledger"]["replayed"], found["ledger"]["in_doubt"]) == (3, 0, 0)
    shown = fleet.runner("show", found["run_id"])
    assert WORD in shown.stdout


def test_another_process_of_a_killed_run_pays_for_no_answer_again(
    fleet: Any, client: Client, two_agents: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start(*("--concurrency", "1"), RUNNER_DEMO_DELAY="0", RUNNER_CRASH_AT=f"step recorded, task not ended:{flag}")
    handle = client.submit(two_agents, models="demo")
    result = handle.wait(60)
    assert result.status == "completed"
    assert flag.exists()
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (3, 0)
    assert result.ledger["replayed"] >= 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--demo", "--offline"), "choose --demo (scripted answers) or --offline (a small local model), not both"),
    ],
)
def test_what_cannot_be_meant(fleet: Any, two_agents: Path, arguments: tuple[str, ...], why: str) -> None:
    said = fleet.runner("submit", str(two_agents), *arguments)
    assert (said.returncode, said.stdout, said.stderr) == (2, "", f"error: {why}\n")


def test_a_name_that_stands_for_nothing(client: Client, two_agents: Path) -> None:
    with pytest.raises(UsageError, match="no stub model 'mine', only demo, offline"):
        client.submit(two_agents, models="mine")


def asked(*messages: tuple[str, str], **more: Any) -> ModelRequest:
    told = [{"role": role, "content": content} for role, content in messages]
    return ModelRequest(1, "openai", "/v1/chat/completions", {"model": "m", "messages": told, **more})


def offered(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"properties": properties}}}


def test_the_same_question_gets_the_same_answer() -> None:
    question = asked(("system", "You are a poet.\nYou rhyme."), ("user", 'Write of "owls".'))
    assert demo.answer(question) == demo.answer(question)
    assert demo.answer(question).text == (
        '[DEMO] No model wrote this. A model would answer here as a poet.\nIt was asked: Write of "owls".'
    )


def test_arguments_come_from_the_conversation() -> None:
    tools = [offered("read", path={"type": "string"}), offered("find", words={"type": "string"}),
             offered("pick", n={"type": "integer", "minimum": 3}, of={"enum": ["a", "b"]})]  # fmt: skip
    question = ("user", 'Look into "barn owls" in notes.md.')
    found = [demo.answer(asked(question, tools=[tool])).calls[0].arguments for tool in tools]
    assert found == [{"path": "notes.md"}, {"words": "barn owls"}, {"n": 3, "of": "a"}]


def test_an_answer_in_a_form_keeps_it() -> None:
    schema = {"type": "object", "required": ["valid"], "properties": {"valid": {"type": "boolean"}}}
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}
    assert json.loads(demo.answer(asked(("user", "Is it?"), response_format=form)).text) == {"valid": True}


def test_only_what_a_run_asks_of_models_takes_another_turn() -> None:
    assert elsewhere("https://api.openai.com/v1/chat/completions") is None
    assert elsewhere("http://demo.example.org/v1/chat/completions") is None
    turned = elsewhere("https://api.openai.com/v1/chat/completions?a=b", "demo")
    assert turned is not None
    assert turned.startswith("http://127.0.0.1:")
    assert turned.endswith("/v1/chat/completions?a=b")
    with using("demo"):
        assert elsewhere("http://demo.invalid/v1/models") == turned.partition("/v1")[0] + "/v1/models"
