"""The vendors' own clients understand the model server, and it counts what they asked."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.testing import Answer, Call, ModelServer, Rule

from ...support.later import Later

anthropic, openai = Later("anthropic"), Later("openai")

SAY = [{"role": "user", "content": "Tell me of owls."}]
TOOL = {
    "type": "function",
    "function": {"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}
SCRIPT = [Rule("owls", [Call("search", {"q": "owls"}), Call("search", {"q": "mice"})], "Owls fly silently.")]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(SCRIPT) as one:
        yield one


@pytest.fixture
def client(server: ModelServer) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0) as one:
        yield one


@pytest.fixture
def claude(server: ModelServer) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=server.root, api_key="none", max_retries=0) as one:
        yield one


def test_a_conversation_with_tools(server: ModelServer, client: Any) -> None:
    first = client.chat.completions.create(model="m", messages=SAY, tools=[TOOL])
    calls = first.choices[0].message.tool_calls
    assert first.choices[0].finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in calls] == [{"q": "owls"}, {"q": "mice"}]
    told = [*SAY, first.choices[0].message.model_dump(exclude_none=True)]
    told += [{"role": "tool", "tool_call_id": call.id, "content": "found"} for call in calls]
    last = client.chat.completions.create(model="m", messages=told, tools=[TOOL])
    assert last.choices[0].message.content == "Owls fly silently."
    assert [one.results for one in server.log] == [[], ["found", "found"]]
    assert server.requests == server.paid == 2
    used = (first.usage.prompt_tokens + last.usage.prompt_tokens,
            first.usage.completion_tokens + last.usage.completion_tokens)  # fmt: skip
    assert server.tokens == used


def test_the_same_question_has_the_same_answer(client: Any) -> None:
    once, again = (client.chat.completions.create(model="m", messages=SAY, tools=[TOOL]) for _ in range(2))
    assert once.model_dump() == again.model_dump()


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream(server: ModelServer, client: Any, usage: bool) -> None:
    server.use("Owls fly silently.")
    extra = {"stream_options": {"include_usage": True}} if usage else {}
    pieces = list(client.chat.completions.create(model="m", messages=SAY, stream=True, **extra))
    assert "".join(p.choices[0].delta.content or "" for p in pieces if p.choices) == "Owls fly silently."
    assert [p.usage.completion_tokens for p in pieces if p.usage] == ([4] if usage else [])


def test_a_stream_of_tool_calls(client: Any) -> None:
    with client.chat.completions.stream(model="m", messages=SAY, tools=[TOOL]) as stream:
        said = stream.get_final_completion().choices[0].message.tool_calls
    assert [call.function.arguments for call in said] == ['{"q": "owls"}', '{"q": "mice"}']


def test_asynchronously(server: ModelServer) -> None:
    all_here = threading.Barrier(3)
    server.use(lambda request: (all_here.wait(30), "Yes.")[1])

    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none") as one:
            found = await asyncio.gather(*(one.chat.completions.create(model="m", messages=SAY) for _ in range(3)))
        return [answer.choices[0].message.content for answer in found]

    assert asyncio.run(ask()) == ["Yes."] * 3
    assert server.at_once == 3


def test_a_schema_is_followed(server: ModelServer, client: Any) -> None:
    server.use(None)
    schema = {
        "type": "object", "required": ["n", "who"], "additionalProperties": False,
        "properties": {"n": {"type": "integer", "minimum": 3}, "who": {"enum": ["owl", "mouse"]}},
    }  # fmt: skip
    asked = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    said = client.chat.completions.create(model="m", messages=SAY, response_format=asked).choices[0].message
    assert json.loads(said.content) == {"n": 3, "who": "owl"}
    said = client.chat.completions.create(model="m", messages=SAY, tools=[TOOL], tool_choice="required")
    assert said.choices[0].message.tool_calls[0].function.name == "search"


def test_models_and_embeddings(server: ModelServer, client: Any) -> None:
    assert [one.id for one in client.models.list()] == ["test-model"]
    assert server.requests == 0
    owls, again, mice = client.embeddings.create(model="e", input=["owls fly", "owls fly", "mice run"]).data
    assert owls.embedding == again.embedding != mice.embedding
    assert server.paid == 1


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Answer("slow down", status=429, retry_after=0.01), "RateLimitError"),
        (Answer("slow down", status=429), "RateLimitError"),
        (Answer(status=500), "InternalServerError"),
        (Answer("never heard", cut=0.5), "APIConnectionError"),
        (Answer("never read", malformed=True), "(APIResponseValidation|JSONDecode)Error"),
        (lambda request: 1 / 0, "InternalServerError"),
    ],
)
@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_what_goes_wrong(server: ModelServer, client: Any, claude: Any, vendor: str, script: Any, error: str) -> None:
    server.use(script)
    ask = client.chat.completions.create if vendor == "openai" else claude.messages.create
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each vendor has its own
        ask(model="m", messages=SAY, max_tokens=9)
    assert re.fullmatch(error, type(caught.value).__name__), repr(caught.value)
    assert server.requests == 1
    assert server.paid == (1 if isinstance(script, Answer) and script.status == 200 else 0)


@pytest.mark.parametrize("script", [Answer("long enough to be cut", cut=0.6), Answer("text", malformed=True)])
def test_a_stream_that_breaks(server: ModelServer, client: Any, script: Answer) -> None:
    server.use(script)
    with pytest.raises(Exception):  # noqa: B017, PT011 - httpx's own for one, json's for the other
        list(client.chat.completions.create(model="m", messages=SAY, stream=True))
    assert server.paid == 1


def test_a_fault_that_passes(server: ModelServer) -> None:
    server.use([Rule(None, Answer(status=429, retry_after=0.01), Answer(status=500), times=2), Rule(None, "At last.")])
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=3) as one:
        said = one.chat.completions.create(model="m", messages=SAY)
    assert said.choices[0].message.content == "At last."
    assert (server.requests, server.paid) == (3, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_responses(server: ModelServer, client: Any, stream: bool) -> None:
    server.use([Rule("owls", [Call("look", {"thing": n}) for n in "ab"], "All seen."), Rule(None, "Nothing.")])
    asked: list[Any] = [{"role": "user", "content": "owls"}]
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}]

    def respond() -> Any:
        if not stream:
            return client.responses.create(model="gpt", input=asked, tools=tools, instructions="Look.")
        with client.responses.stream(model="gpt", input=asked, tools=tools, instructions="Look.") as events:
            return events.get_final_response()

    wanted = [item for item in respond().output if item.type == "function_call"]
    assert [(one.name, json.loads(one.arguments)) for one in wanted] == [("look", {"thing": n}) for n in "ab"]
    for one in wanted:
        called = {"type": "function_call", "call_id": one.call_id, "name": one.name, "arguments": one.arguments}
        asked.append(called)
    asked += [{"type": "function_call_output", "call_id": one.call_id, "output": "there"} for one in wanted]
    answer = respond()
    assert (answer.output_text, answer.usage.total_tokens > 0, server.paid) == ("All seen.", True, 2)
    last = server.log[-1]
    assert ([m["role"] for m in last.messages], last.turn, last.results) == (
        ["system", "user", "assistant", "tool", "tool"], 1, ["there", "there"],
    )  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic(server: ModelServer, claude: Any, stream: bool) -> None:
    tool = {"name": "search", "input_schema": TOOL["function"]["parameters"]}
    told: list[Any] = list(SAY)

    def ask() -> Any:
        asked = {"model": "m", "max_tokens": 99, "messages": told, "tools": [tool], "system": "Be short."}
        if not stream:
            return claude.messages.create(**asked)
        with claude.messages.stream(**asked) as pieces:
            return pieces.get_final_message()

    first = ask()
    assert first.stop_reason == "tool_use"
    assert [block.input for block in first.content] == [{"q": "owls"}, {"q": "mice"}]
    told.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]})
    results = [{"type": "tool_result", "tool_use_id": one.id, "content": "found"} for one in first.content]
    told.append({"role": "user", "content": results})
    last = ask()
    assert (last.content[0].text, last.stop_reason) == ("Owls fly silently.", "end_turn")
    assert [one.results for one in server.log] == [[], ["found", "found"]]
    assert server.tokens[1] == first.usage.output_tokens + last.usage.output_tokens
    assert "x-api-key" not in {name.lower() for one in server.log for name in one.headers}


def test_a_process_of_its_own_counts_clients_that_were_killed(tmp_path: Path, eventually: Any) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps([{"when": "owls", "answer": {"text": "Silently.", "delay": 60}}]))
    started = subprocess.Popen(
        [sys.executable, "-m", "runner.testing.model_server", "--script", rules, "--log", tmp_path / "log"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert started.stdout is not None
    with started, contextlib.ExitStack() as ends:
        ends.callback(started.kill)  # a test that fails leaves neither
        url = started.stdout.readline().strip()
        ask = (
            f"import openai; openai.OpenAI(base_url={url!r}, api_key='x')"
            f".chat.completions.create(model='m', messages={SAY!r})"
        )
        asking = subprocess.Popen([sys.executable, "-c", ask])
        ends.callback(asking.kill)

        def counted() -> Any:
            with urllib.request.urlopen(url.removesuffix("/v1") + "/_requests?log") as said:
                return json.load(said)

        eventually(lambda: counted()["paid"], within=120, why="the request comes")
        asking.kill()
        asking.wait()
        assert [one["body"]["messages"] for one in counted()["log"]] == [SAY]
        started.terminate()
        assert json.loads(started.stdout.readline())["paid"] == 1
        assert started.wait(60) == 0
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_a_script_that_cannot_be_read_says_so() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "runner.testing.model_server", "--script", "nowhere.json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 2
    assert said.stderr.startswith("error: nowhere.json: ")
