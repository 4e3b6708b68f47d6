"""Recorded answers that are read without the vendor's client are read as it reads them."""

import json
from typing import Any

import httpx2
import pytest

from runner.llm.clients.recorded import read
from runner.llm.llm import LLM
from runner.testing import Answer

from ...support.later import Later

openai, openai_client = Later("openai"), Later("runner.llm.clients.openai")

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2, "audio_tokens": 0},
         "completion_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 7}  # fmt: skip


def openai_answer(finish: Any = "stop", usage: Any = USAGE, **message: Any) -> dict[str, Any]:
    return {"id": "1", "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}],
            "model": "m", "object": "chat.completion", "created": 1, "usage": usage}  # fmt: skip


def claude(*blocks: Any, usage: Any = None, stop: Any = "end_turn") -> dict[str, Any]:
    counted = {"input_tokens": 5, "output_tokens": 6, "cache_read_input_tokens": 1, "cache_creation_input_tokens": None}
    return {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": list(blocks),
            "stop_reason": stop, "stop_sequence": None, "usage": usage or counted}  # fmt: skip


TEXT = {"type": "text", "text": "t"}
USE = {"type": "tool_use", "id": "u1", "name": "f", "input": {"a": [1, {"b": None}], "é": 1.5}}
READABLE = [
    ("openai", openai_answer(content="text")),
    ("openai", openai_answer(content="half \ud83d")),
    ("openai", openai_answer(content=None, refusal="no", usage=None)),
    ("openai", openai_answer(content=None, tool_calls=[CALL, {**CALL, "id": ""}], finish="tool_calls")),
    ("openai", openai_answer(tool_calls=None, usage={"prompt_tokens": 3, "completion_tokens": 4})),
    ("openai", {**openai_answer(content="x"), "extra": [1], "usage": {**USAGE, "prompt_tokens_details": None}}),
    ("anthropic", claude(TEXT, TEXT)),
    ("anthropic", claude(TEXT, USE, USE, stop="tool_use")),
    ("anthropic", claude(usage={"input_tokens": 1, "output_tokens": 0})),
]  # fmt: skip
UNUSUAL = [
    ("openai", openai_answer(content=[{"type": "text", "text": "t"}])),
    ("openai", openai_answer(content="x", finish=None)),
    ("openai", openai_answer(content="x", usage={"prompt_tokens": 1.5, "completion_tokens": True})),
    (
        "openai",
        openai_answer(content="x", tool_calls=[{"id": "c1", "type": "custom", "custom": {"name": "f", "input": "i"}}]),
    ),
    ("openai", openai_answer(content="x", tool_calls=[{**CALL, "function": {"name": "f"}}])),
    ("openai", {"choices": []}),
    ("openai", []),
    ("anthropic", claude({"type": "thinking", "thinking": "hm", "signature": "s"}, TEXT)),
    ("anthropic", claude(TEXT, stop=None)),
    ("anthropic", {"content": "t"}),
]


@pytest.mark.parametrize(("vendor", "answer"), READABLE)
def test_an_answer_of_the_usual_form(vendor, answer, server):
    body = json.dumps(answer)
    server.use(Answer(body=body))
    base = server.url if vendor == "openai" else server.root
    model = LLM(f"{vendor}/m", base_url=base, api_key="k", max_retries=0)
    assert read(vendor, False, body.encode()) == model.complete("?")


@pytest.mark.parametrize(("vendor", "answer"), UNUSUAL)
def test_another_one_is_read_as_its_client_reads_it_or_left_to_it(vendor, answer, server):
    body = json.dumps(answer)
    server.use(Answer(body=body))
    model = LLM(f"{vendor}/m", base_url=server.url if vendor == "openai" else server.root, api_key="k", max_retries=0)
    found = read(vendor, False, body.encode())
    assert found is None or found == model.complete("?")


def sse(*events: Any) -> bytes:
    return b"".join(b"data: %s\n\n" % (json.dumps(one).encode() if one != "[DONE]" else b"[DONE]") for one in events)


def chunk(finish: Any = None, usage: Any = None, **delta: Any) -> dict[str, Any]:
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": usage,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}  # fmt: skip


def part(index: Any, name: Any = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"index": index, "function": {"name": name, "arguments": arguments}, **more}


LAST = {**chunk(usage=USAGE), "choices": []}
STREAMS = [
    [chunk(role="assistant", content="a"), chunk(content="b"), chunk("stop", usage=USAGE), "[DONE]"],
    [chunk(content="a"), chunk("length"), LAST, "[DONE]"],
    [chunk(tool_calls=[part(0, "f", "", id="c1", type="function")]), chunk(tool_calls=[part(0, None, '{"a":')]),
     chunk(tool_calls=[part(1, "g", "{}", id=None), part(0, None, " 1}")]), chunk("tool_calls"), "[DONE]"],
    # an emoji is two characters of JSON, and some servers cut between them
    [chunk(content="owl \ud83e"), chunk(content="\udd89 \ud83e"),
     chunk(tool_calls=[part(0, "f\ud83e", '{"a": "\ud83e')]), chunk(tool_calls=[part(0, None, '\udd89"}')]),
     chunk("tool_calls"), "[DONE]"],
]  # fmt: skip


@pytest.mark.parametrize("events", STREAMS)
def test_a_stream_of_the_usual_form(events, server, monkeypatch):
    body = sse(*events)
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)
    )
    client = openai.OpenAI(api_key="k", http_client=httpx2.Client(transport=transport))
    monkeypatch.setattr(openai_client.OwnClient, "get", lambda _: client)
    assert read("openai", True, body) == LLM("openai/m", base_url="http://m", api_key="k", stream=True).complete("?")


def test_an_emoji_that_came_in_two_pieces_is_one():
    found = read("openai", True, sse(*STREAMS[-1]))
    assert found is not None
    assert found.text == "owl \U0001f989 ?"
    assert found.tool_calls[0]["function"] == {"name": "f?", "arguments": '{"a": "\U0001f989"}'}


@pytest.mark.parametrize(
    "body",
    [
        sse(chunk(content="a"), "[DONE]"),
        sse(chunk(content="a"), {"error": {"message": "no"}}),
        sse(chunk("stop", content=["a"]), "[DONE]"),
        b"event: x\n" + sse(chunk("stop", content="a")),
        b'{"choices": []}',
    ],
    ids=["cut off", "an error", "no text", "events with names", "no stream"],
)
def test_another_stream_is_left_to_the_client(body):
    assert read("openai", True, body) is None


@pytest.mark.parametrize("error", [TypeError, AttributeError, ValueError])
def test_what_the_reader_of_a_recorded_stream_raises_is_not_taken_for_an_unusual_answer(error):
    """The client would read the answer again, and give its reader each piece twice."""
    got: list[str] = []

    def take(piece: Any) -> None:
        got.append(piece.text)
        raise error("of the reader")

    with pytest.raises(error, match="of the reader"):
        read("openai", True, sse(*STREAMS[0]), take)
    assert got == ["a"]
