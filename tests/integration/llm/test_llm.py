"""`LLM` over the vendors' own clients, against a server that speaks their protocols."""

import asyncio
import copy
import json
import os
import pickle
import sys
import types

import pytest
from pydantic import BaseModel

from runner import LLM
from runner.core import backoff
from runner.core.errors import ContextTooLong, ModelError
from runner.llm.clients import ToolCalls, client_of, resolve
from runner.llm.clients.model_names import context_window
from runner.testing import Answer, Call, ModelServer, Rule

KEY = "sk-secret-of-mine-1234"

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
}
CALLED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What flies?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": "look", "arguments": '{"q": "owls"}'}}
            for i in range(2)
        ],
    },
    {"role": "tool", "tool_call_id": "c0", "name": "look", "content": "3 pages"},
    {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "4 pages"},
]


class Bird(BaseModel):
    name: str


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(backoff, "delay", lambda *_: 0.0)
    with ModelServer() as one:
        yield one


@pytest.fixture(params=["openai", "anthropic"])
def llm(request, server):
    """A model of each vendor."""

    def make(**given):
        url = server.url if request.param == "openai" else server.root
        return LLM(f"{request.param}/m", base_url=url, api_key=KEY, **given)

    return make


# -- answers


@pytest.mark.parametrize("stream", [False, True])
def test_text_and_what_was_counted_for_it(llm, server, stream):
    server.use(Answer("Owls fly.", usage=(7, 3)))
    model = llm(stream=stream, temperature=0.5, max_tokens=50)
    pieces: list[str] = []
    completion = model.complete("What flies?", on_chunk=lambda piece: pieces.append(piece.text))
    assert (completion.text, completion.tool_calls) == ("Owls fly.", ())
    assert completion.usage == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    assert "".join(pieces) == ("Owls fly." if stream else "")
    assert model.call([{"role": "user", "content": "What flies?"}]) == "Owls fly."
    assert asyncio.run(model.acall("What flies?")) == "Owls fly."
    assert model.get_token_usage_summary() == {
        "prompt_tokens": 21, "completion_tokens": 9, "total_tokens": 30, "successful_requests": 3,
    }  # fmt: skip
    assert {(r.stream, r.body["temperature"], r.body["max_tokens"]) for r in server.log} == {(stream, 0.5, 50)}
    assert {r.body["model"] for r in server.log} == {"m"}


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_and_their_results(llm, server, stream):
    server.use(Answer("I look.", calls=[Call("look", {"q": "owls"}), Call("look", {"q": "hens"})]))
    model = llm(stream=stream)
    said = model.call("What flies?", tools=[LOOK])
    assert isinstance(said, ToolCalls)
    assert said.content == "I look."
    assert [(c["type"], c["function"]["name"], c["function"]["arguments"]) for c in said] == [
        ("function", "look", '{"q": "owls"}'),
        ("function", "look", '{"q": "hens"}'),
    ]
    assert len({call["id"] for call in said}) == 2
    assert asyncio.run(model.acall("What flies?", tools=[LOOK])) == said
    assert model.call("What?", tools=[LOOK], available_functions={"look": lambda q: f"saw {q}"}) == "saw owls"
    server.use("Owls.")
    assert model.call(CALLED, tools=[LOOK]) == "Owls."
    assert server.log[-1].results == ["3 pages", "4 pages"]
    assert model.call(CALLED) == "Owls.", "a conversation that used tools goes on without any"


def test_an_answer_that_fits_a_model(llm, server):
    server.use('{"name": "owl"}')
    assert llm().call("?", response_model=Bird) == Bird(name="owl")
    sent = server.log[-1]
    if sent.protocol == "openai":
        assert sent.schema == Bird.model_json_schema()
        server.use([Rule(lambda r: r.schema, Answer("unknown parameter", status=400)), Rule(None, '{"name": "hen"}')])
        assert llm().call("?", response_model=Bird) == Bird(name="hen"), "a server that knows of no schemas"


# -- what goes wrong


def test_what_is_no_utf8_is_sent_all_the_same(llm, server):
    server.use("read")
    assert llm().call([{"role": "user", "content": "the file a\udc80b, für \U0001f989"}]) == "read"
    assert "the file a?b, für \U0001f989" in str(server.log[-1].body["messages"])


@pytest.mark.parametrize("told", [float("nan"), float("inf"), 10**30, 1e30, -3, "9"])
def test_an_answer_that_is_odd_is_an_answer(server, told):
    """It is cut in the middle of an emoji, and its tokens are no numbers."""
    said = {"message": {"role": "assistant", "content": "owl \U0001f989 \ud83e"}, "finish_reason": "length"}
    usage = {"prompt_tokens": told, "completion_tokens": told}
    server.use(Answer(body=json.dumps({"object": "chat.completion", "choices": [said], "usage": usage})))
    assert LLM("openai/m", base_url=f"{server.url}/v1", api_key=KEY).call("?") == "owl \U0001f989 ?"
    assert server.requests == 1


def test_what_passes_is_tried_again(llm, server):
    server.use([Rule(None, Answer(status=429, retry_after=0.01), Answer(status=503, retry_after=0.01), times=2)])
    assert llm().call("?").startswith("answer")
    assert (server.requests, server.paid) == (3, 1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [Answer("half of it, no more", cut=0.5), Answer("x", malformed=True)])
def test_half_an_answer_is_asked_for_again(llm, server, stream, fault):
    server.use([Rule(None, fault, times=1), Rule(None, "whole")])
    assert llm(stream=stream).call("?") == "whole"
    server.reset()
    server.use(fault)
    with pytest.raises(
        ModelError, match=r"^the model 'm' at 127.0.0.1:\d+ (gave an unreadable answer|cannot be|could not)"
    ) as e:
        llm(stream=stream, max_retries=1).call("?")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (Answer(f"wrong key {KEY}", status=401), r"refused: 401: wrong key \*\*\* \(is the key right"),
        (Answer("no such model", status=404), r"refused: 404: no such model \(is the model's name right"),
        (Answer("slow\ndown", status=429, retry_after=0.01), "refused, in up to 2 tries: 429: slow down"),
        (Answer("broken", status=500, retry_after=0.01), "refused, in up to 2 tries: 500: broken"),
    ],
)
def test_what_does_not_pass_is_said_in_a_line_without_the_key(llm, server, fault, line):
    server.use(fault)
    with pytest.raises(ModelError, match=rf"^the model 'm' at 127.0.0.1:\d+ {line}") as error:
        llm(max_retries=1).call("?")
    assert KEY not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize("wanted", [3600, "Wed, 21 Oct 2137 07:28:00 GMT"])
def test_a_service_that_wants_a_longer_pause_than_calls_make_is_said_to(server, wanted):
    server.use(Answer("slow", status=429, retry_after=wanted))
    line = r"refused: 429: slow; it asks to wait (3600|\d{10}) s \(Retry-After\), longer than calls wait"
    with pytest.raises(ModelError, match=line):
        LLM("openai/m", base_url=server.url, api_key=KEY).call("?")
    assert server.requests == 1


def test_a_conversation_that_is_too_long_is_told_apart(llm, server):
    server.use(Answer("This model's maximum context length is 10 tokens", status=400))
    with pytest.raises(ContextTooLong, match="accepts less input than it was sent"):
        llm().call("?")


def test_nobody_there(llm):
    model = LLM("openai/m", base_url="http://127.0.0.1:1/v1", max_retries=0)
    with pytest.raises(ModelError, match=r"^the model 'm' at 127\.0\.0\.1:1 cannot be reached: Connection error"):
        model.call("?")


def test_too_slow(llm, server):
    server.use(Answer("x", delay=30))
    with pytest.raises(ModelError, match=r"did not answer in time; raise LLM\(timeout=...\)"):
        llm(timeout=0.05, max_retries=0).call("?")


# -- where a model is


@pytest.mark.parametrize(
    ("model", "given", "client", "name", "url"),
    [
        ("openai/gpt-4o", {}, "openai", "gpt-4o", "https://api.openai.com/v1"),
        ("gpt-4o", {}, "openai", "gpt-4o", "https://api.openai.com/v1"),
        ("openai/a/b", {"OPENAI_BASE_URL": "http://x/v1/"}, "openai", "a/b", "http://x/v1"),
        ("Qwen/Q", {"base_url": "http://x/v1"}, "openai", "Qwen/Q", "http://x/v1"),
        ("ollama/llama3.2", {}, "openai", "llama3.2", "http://localhost:11434/v1"),
        ("vllm/Qwen/Q", {"VLLM_BASE_URL": "http://v/v1"}, "openai", "Qwen/Q", "http://v/v1"),
        ("openrouter/x/y", {}, "openai", "x/y", "https://openrouter.ai/api/v1"),
        ("claude-sonnet-4-5", {}, "anthropic", "claude-sonnet-4-5", "https://api.anthropic.com"),
        ("anthropic/c", {"ANTHROPIC_BASE_URL": "http://a"}, "anthropic", "c", "http://a"),
        ("bedrock/x", {}, "litellm", "bedrock/x", None),
        ("litellm/openai/x", {}, "litellm", "openai/x", None),
    ],
)
def test_which_service_a_name_means(model, given, client, name, url):
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"), "k")
    environment = {**keys, **{key: value for key, value in given.items() if key.isupper()}}
    found = resolve(model, None, given.get("base_url"), None, environment)
    assert (found.client, found.model, found.base_url) == (client, name, url)
    assert client_of(model, None, given.get("base_url")) == client


@pytest.mark.parametrize(("model", "provider", "base_url"), [("x/y", "acme", None), ("acme/y", "acme", "http://a")])
def test_the_client_of_a_model_is_known_without_the_environment(model, provider, base_url):
    assert client_of(model, provider, base_url) == resolve(model, provider, base_url, None, {}).client


def test_whether_a_call_is_journaled_needs_no_key(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    assert LLM("openai/x").journaled_by_transport
    assert not LLM("bedrock/x").journaled_by_transport


@pytest.mark.parametrize("model", ["openai/x", "anthropic/x", "openrouter/x"])
def test_a_missing_key_is_said_with_its_variable(model):
    variable = f"{model.partition('/')[0].upper()}_API_KEY"
    with pytest.raises(ModelError, match=f"^there is no key for the model 'x': set {variable} in the environment"):
        resolve(model, None, None, None, {})


def test_a_client_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    monkeypatch.delitem(sys.modules, "runner.llm.clients.litellm", raising=False)
    with pytest.raises(ModelError, match=r"called through litellm, which is not installed here: pip install 'crew-"):
        LLM("bedrock/x").call("?")


def test_others_go_through_litellm(monkeypatch):
    asked: list[dict] = []

    class Refused(Exception):
        status_code = 429
        litellm_response_headers = {"retry-after": "0.01"}

    def completion(**body):
        asked.append(body)
        if len(asked) < 3:
            raise Refused
        made = types.SimpleNamespace
        message = made(content="hi", tool_calls=None)
        return made(choices=[made(message=message, finish_reason="stop")], usage=None)

    errors = types.SimpleNamespace(APIError=ValueError, OpenAIError=ValueError)
    fake = types.SimpleNamespace(completion=completion, exceptions=errors)
    monkeypatch.setitem(sys.modules, "litellm", fake)
    monkeypatch.delitem(sys.modules, "runner.llm.clients.litellm", raising=False)
    model = LLM("bedrock/x", temperature=0, timeout=3)
    assert model.call("?") == "hi"
    assert not model.journaled_by_transport
    assert asked == 3 * [
        {"model": "bedrock/x", "messages": [{"role": "user", "content": "?"}], "num_retries": 0, "max_retries": 0,
         "temperature": 0, "timeout": 3},
    ]  # fmt: skip
    asked.clear()
    with pytest.raises(ModelError, match="refused, in up to 2 tries: 429"):
        LLM("bedrock/x", max_retries=1).call("?")
    monkeypatch.delitem(sys.modules, "runner.llm.clients.litellm", raising=False)


def test_what_is_known_of_names():
    assert [context_window(name) for name in ("openai/gpt-4o-mini", "gpt-4", "claude-x", "mine")] == [
        128_000, 8_192, 200_000, None,
    ]  # fmt: skip
    assert LLM("mine").get_context_window_size() == 0
    assert LLM("mine", context_window_size=5).get_context_window_size() == 5


def test_a_model_can_be_copied_and_shows_no_key(server):
    model = LLM("m", base_url=server.url, api_key=KEY)
    model.call("?")
    assert copy.deepcopy(model).call("?") == pickle.loads(pickle.dumps(model)).call("?")
    assert repr(model) == "LLM(model='m')"
    assert KEY not in repr(model._target())
    for name in ("", "  "):
        with pytest.raises(ValueError, match=r"LLM\(model=...\) takes the name of a model"):
            LLM(name)
