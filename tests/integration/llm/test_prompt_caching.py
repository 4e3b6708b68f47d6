"""Prompts of native agents that Anthropic is to keep: where they are marked, and that no call is another one by it."""

import asyncio
from typing import Any

import pytest

from runner.llm.clients import prompt_caching
from runner.llm.llm import LLM
from runner.testing import ModelServer

TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
}
FIRST = [{"role": "system", "content": 'You are "Ann", a \\ writer.\n€'}, {"role": "user", "content": "go"}]
USED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
LATER = [
    *FIRST,
    {"role": "assistant", "content": "", "tool_calls": [USED]},
    {"role": "tool", "tool_call_id": "c1", "content": "seen"},
]
MARK = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
def model(server: ModelServer) -> LLM:
    return LLM(model="anthropic/claude-next", base_url=server.root, api_key="k")


def asked(server: ModelServer) -> Any:
    return server.log[-1].body


def test_the_system_and_the_ends_of_the_last_two_turns_are_marked(model: LLM, server: ModelServer) -> None:
    model.call(LATER, tools=[TOOL])
    body = asked(server)
    assert [block.get("cache_control") for block in body["system"]] == [MARK["cache_control"]]
    assert [[set(block) >= set(MARK) for block in turn["content"]] for turn in body["messages"]] == [
        [True],
        [False],
        [True],
    ]
    assert "cache_control" not in body["tools"][0], "the system's mark has the tools in it"
    assert str(body).count("cache_control") <= 4, "no more are allowed"


def test_without_a_system_the_tools_are_marked(model: LLM, server: ModelServer) -> None:
    model.call(FIRST[1:], tools=[TOOL])
    assert asked(server)["tools"][-1].items() >= MARK.items()


def test_what_is_asked_once_is_not_marked(model: LLM, server: ModelServer) -> None:
    model.call(FIRST)
    assert "cache_control" not in str(asked(server))


@pytest.mark.parametrize("way", ["whole", "streamed", "async"])
def test_what_was_recorded_without_marks_is_not_paid_again(
    way: str, server: ModelServer, attempt: Any, account: Any, monkeypatch: Any
) -> None:
    model = LLM(model="anthropic/claude-next", base_url=server.root, api_key="k", stream=way == "streamed")

    def task() -> list[Any]:
        if way == "async":
            return [asyncio.run(model.acall(said, tools=[TOOL])) for said in (FIRST, LATER)]
        return [model.call(said, tools=[TOOL]) for said in (FIRST, LATER)]

    with monkeypatch.context() as before:
        before.setattr(prompt_caching, "mark", lambda body: None)
        said = attempt(task)
    assert server.paid == 2
    assert "cache_control" not in str(asked(server))
    # When a worker of this version goes on
    assert attempt(task) == said
    # Then all of it is served
    assert (server.paid, account.replayed.total()) == (2, 2)


def test_marks_of_a_crews_own_are_part_of_what_is_asked(server: ModelServer, attempt: Any) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=server.root.removesuffix("/v1"), api_key="k")

    def ask(**more: Any) -> Any:
        block = {"type": "text", "text": "go", **more}
        return lambda: client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": [block]}])

    attempt(ask())
    attempt(ask(**MARK))
    assert server.paid == 2
