"""The tokens that vendors tell of, each in its own words: in one account, and apart in it what has its own price."""

import json
from typing import Any

import pytest

from runner.core.ledger import AccountKey, Usage
from runner.llm.recording.wire import answer_of, looked_at, request, taken, text_of, usage_of

OPENAI = {
    "prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300,
    "prompt_tokens_details": {"cached_tokens": 800, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 200, "accepted_prediction_tokens": 0},
}  # fmt: skip
RESPONSES = {
    "input_tokens": 1000, "output_tokens": 300, "total_tokens": 1300,
    "input_tokens_details": {"cached_tokens": 800}, "output_tokens_details": {"reasoning_tokens": 200},
}  # fmt: skip
ANTHROPIC = {
    "input_tokens": 500, "cache_read_input_tokens": 90_000, "cache_creation_input_tokens": 2_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 1_500, "ephemeral_1h_input_tokens": 500}, "output_tokens": 7,
}  # fmt: skip
GEMINI = {
    "promptTokenCount": 1000,
    "cachedContentTokenCount": 800,
    "candidatesTokenCount": 100,
    "thoughtsTokenCount": 200,
}
DEEPSEEK = {
    "prompt_tokens": 1000,
    "completion_tokens": 300,
    "prompt_cache_hit_tokens": 800,
    "prompt_cache_miss_tokens": 200,
}
OF_OPENAI = Usage(1000, 300, 800, 0, 0, 200)
OF_ANTHROPIC = Usage(92_500, 7, 90_000, 2_000, 500)


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events) + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        ({"choices": [], "usage": OPENAI}, OF_OPENAI),
        ({"object": "response", "usage": RESPONSES}, OF_OPENAI),
        ({"type": "message", "usage": ANTHROPIC}, OF_ANTHROPIC),
        ({"candidates": [], "usageMetadata": GEMINI}, OF_OPENAI),
        ({"choices": [], "usage": DEEPSEEK}, Usage(1000, 300, 800)),
        ({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}, Usage(9, 2)),
        ({"usage": {**OPENAI, "prompt_tokens_details": None, "completion_tokens_details": 3}}, Usage(1000, 300)),
        ({"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": -5}}}, Usage(9)),
        ({"usage": {"prompt_tokens": float("inf"), "completion_tokens": float("nan")}}, Usage()),
        ({"usage": {"prompt_tokens": 10**30, "completion_tokens": 2, "total_tokens": 1e30}}, Usage(0, 2)),
        ({"prompt_eval_count": 12, "eval_count": 3, "done": True}, Usage(12, 3)),
    ],
)  # fmt: skip
def test_an_answer(body: Any, usage: Usage) -> None:
    assert usage_of(json.dumps(body).encode()) == usage


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (sse({"choices": [{}], "usage": None}, {"choices": [], "usage": OPENAI}), OF_OPENAI),
        (sse({"response": {"usage": None}}, {"response": {"usage": RESPONSES}}), OF_OPENAI),
        (sse({"message": {"usage": {**ANTHROPIC, "output_tokens": 1}}}, {"usage": {"output_tokens": 7}}), OF_ANTHROPIC),
        (sse({"usageMetadata": {**GEMINI, "thoughtsTokenCount": 0}}, {"usageMetadata": GEMINI}), OF_OPENAI),
    ],
)  # fmt: skip
def test_a_stream(body: bytes, usage: Usage) -> None:
    assert usage_of(body) == usage


@pytest.mark.parametrize("usage", [Usage(3, 4), OF_ANTHROPIC])
def test_a_recorded_answer_keeps_them_and_workers_of_before_read_it(usage: Usage) -> None:
    text = text_of(200, [], b"{}", usage, AccountKey("model", "a", "m"))
    assert answer_of(json.loads(text)).usage == usage
    assert json.loads(text)["usage"] == list(usage[:2]), "all that a worker of before takes"


def test_what_was_recorded_before_is_read() -> None:
    text = '{"status": 200, "headers": [], "model": "m", "agent": "a", "usage": [3, 4], "body": "{}"}'
    assert answer_of(json.loads(text)).usage == Usage(3, 4)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"model": "m", "usage": OPENAI, "said": "\ud800"}).encode(),  # half a surrogate pair
        b"\xef\xbb\xbf" + json.dumps({"model": "m", "usage": OPENAI}).encode(),
        json.dumps({"model": "m", "usage": OPENAI}).encode("utf-16"),
        json.dumps({"model": "m", "usage": OPENAI, "deep": json.loads("[" * 400 + "]" * 400)}).encode(),
        json.dumps({"model": "m", "usage": OPENAI, "score": float("nan"), "long": 10**40}).encode(),
    ],
    ids=["surrogate", "mark", "utf-16", "deep", "numbers"],
)
def test_all_that_python_reads_as_json_is_a_call_and_an_answer(body: bytes) -> None:
    asked = request("POST", "http://localhost/v1/completions", body, lambda _: False)
    assert asked is not None
    assert asked.model() == "m"
    assert taken(asked, {"content-type": "application/json"}, body) == OF_OPENAI


def test_what_is_no_json_is_neither() -> None:
    for body in (b"", b"{", b'{"model": "m",}', b"\xff"):
        assert request("POST", "http://localhost/v1/completions", body, lambda _: False) is None


def test_of_many_headers_those_are_read_that_something_here_looks_at() -> None:
    sent = [
        (b"Content-Type", b"application/json"),
        (b"set-cookie", b"k=v"),
        (b"X-Request-Id", b"r-\xe9"),
        (b"\xff", b""),
    ]
    assert looked_at(sent) == [("content-type", "application/json"), ("x-request-id", "r-")]
