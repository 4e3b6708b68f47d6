"""Requests are compared by what their ids link: which id a client made up for it makes no other request."""

import json
from typing import Any

import httpx2
import pytest

from runner.llm.recording import links, wire

ONE, OTHER, THIRD = (
    "tooluse_Viqdpw8xmXR9KSV0W3TmDw",
    "8c5c0e1e-3d5b-4a53-b5c1-4a4df0d7ab01",
    "call_1a011b166ca4451988539e12",
)
FORMS: dict[str, Any] = {
    "chat": lambda a, b, said: [
        {"role": "assistant", "tool_calls": [{"id": a, "name": "look"}, {"id": b, "name": "find"}]},
        {"role": "tool", "tool_call_id": a, "content": said},
        {"role": "tool", "tool_call_id": b, "content": "b"},
    ],
    "responses": lambda a, b, said: [
        {"type": "function_call", "call_id": a, "name": "look"},
        {"type": "function_call", "call_id": b, "name": "find"},
        {"type": "function_call_output", "call_id": a, "output": said},
        {"type": "function_call_output", "call_id": b, "output": "b"},
    ],
    "Anthropic": lambda a, b, said: [
        {"type": "tool_use", "id": a, "name": "look"},
        {"type": "tool_use", "id": b, "name": "find"},
        {"type": "tool_result", "tool_use_id": a, "content": said},
        {"type": "tool_result", "tool_use_id": b, "content": "b"},
    ],
    "Bedrock": lambda a, b, said: [
        {"toolUse": {"toolUseId": a, "name": "look"}},
        {"toolUse": {"toolUseId": b, "name": "find"}},
        {"toolResult": {"toolUseId": a, "content": said}},
        {"toolResult": {"toolUseId": b, "content": "b"}},
    ],
    "Google": lambda a, b, said: [
        {"functionCall": {"id": a, "args": {}, "name": "look"}},
        {"functionCall": {"id": b, "args": {}, "name": "find"}},
        {"functionResponse": {"id": a, "name": "look", "response": {"id": "x" * 20, "said": said}}},
        {"functionResponse": {"name": "find", "id": b, "response": {}}},
    ],
    "smolagents": lambda a, b, said: [
        f"Calling tools:\n{[{'id': a, 'type': 'function', 'function': {'name': 'look'}}]}",
        f"Calling tools:\n{[{'id': b, 'type': 'function', 'function': {'name': 'find'}}]}",
        f"Call id: {a}\nError:\n{said}",
        f"Call id: {b}\nError:\nb",
    ],
    "smolagents, without errors": lambda a, b, said: [
        f"Calling tools:\n{[{'id': a, 'type': 'function', 'function': {'name': 'look'}}]}",
        f"Observation:\n{said}",
        f"Calling tools:\n{[{'id': b, 'type': 'function', 'function': {'name': 'find'}}]}",
    ],
}


def digest(body: Any, recorded: Any = lambda _: False, **form: Any) -> str:
    url = "https://models.example/v1/chat/completions"
    found = wire.request("POST", url, json.dumps({"model": "gpt", "messages": body}, **form).encode(), recorded)
    assert found is not None
    return found.digest


@pytest.mark.parametrize("form", [{}, {"separators": (",", ":")}], ids=["spaced", "tight"])
@pytest.mark.parametrize("vendor", FORMS)
def test_which_id_links_a_result_with_its_use_does_not_matter(vendor: str, form: Any) -> None:
    said = FORMS[vendor]
    assert digest(said(ONE, OTHER, "a"), **form) == digest(said(OTHER, THIRD, "a"), **form)
    # What is linked with what does, and all else
    assert digest(said(ONE, OTHER, "a"), **form) != digest(said(ONE, OTHER, "b"), **form)
    assert digest(said(ONE, OTHER, "a"), **form) != digest(
        [*said(ONE, OTHER, "a")[:-1], *said(ONE, ONE, "a")[-1:]], **form
    )


@pytest.mark.parametrize("vendor", FORMS)
def test_an_id_that_links_nothing_is_part_of_what_is_asked(vendor: str) -> None:
    asked = [{"role": "user", "content": f"Where is order {ONE}?", "id": ONE}]
    there = FORMS[vendor](OTHER, THIRD, "a")
    assert digest([*asked, *there]) != digest([{"role": "user", "content": f"Where is order {'y' * 20}?"}, *there])
    assert digest(asked) != digest([{**asked[0], "id": OTHER}])
    assert links.numbered(body := json.dumps(asked).encode()) is body


def test_a_short_id_stays_as_it_is_for_it_may_be_a_word() -> None:
    assert digest(FORMS["chat"]("look", "find", "a")) != digest(FORMS["chat"]("seek", "find", "a"))


@pytest.mark.parametrize(
    "text", ["", '"', '"call_id"', '"call_id":', '"functionResponse": {', '"functionResponse":{"id":']
)
def test_what_is_no_whole_json_is_as_it_is(text: str) -> None:
    assert links.numbered(text.encode()) == text.encode()


def test_a_record_of_a_version_that_compared_bytes_is_found() -> None:
    body = FORMS["chat"](ONE, OTHER, "a")
    text = json.dumps({"model": "gpt", "messages": body}).encode()
    before = wire._hash("POST", b"https://models.example/v1/chat/completions", text)
    assert digest(body, {before}.__contains__) == before != digest(body)


def test_a_call_with_other_ids_is_answered_from_the_record(server, account, attempt) -> None:
    def ask(cache: str, one: str, other: str, said: str = "a") -> None:
        with httpx2.Client() as client:
            body = {"model": "gpt", "prompt_cache_key": f"agents-sdk:run:{cache * 32}"}
            client.post(
                f"{server.url}/chat/completions", json={**body, "messages": FORMS["chat"](one, other, said)}
            ).raise_for_status()

    attempt(lambda: ask("a", ONE, OTHER))
    attempt(lambda: ask("b", OTHER, THIRD))
    assert (server.requests, account.paid.total()) == (1, 1), "it is asked by new ids, and is answered from the record"
    attempt(lambda: ask("a", ONE, OTHER, "b"))
    assert server.requests == 2, "what has another result is another request"
