"""`stream_events`: a call as frames; in a task, one that was answered gives the same frames and is not paid again."""

from typing import Any

import pytest

from runner import LLM, BaseLLM
from runner.core.errors import ModelError
from runner.events import event_bus
from runner.events.call_events import LLMCallType
from runner.testing import Call, ModelServer, Rule

from .conftest import GPT

WEATHER = {"type": "function", "function": {"name": "weather", "description": "", "parameters": {"type": "object"}}}


def gpt(server: ModelServer, **given: Any) -> LLM:
    return LLM("openai/gpt", base_url=server.url, api_key="none", **given)


def types(frames: Any) -> list[str]:
    """Of these frames, each kind once, in its place."""
    return list(dict.fromkeys(frame.type for frame in frames))


ALL = ["llm_call_started", "llm_stream_chunk", "llm_call_completed"]


def test_a_call_is_frames_and_its_answer_the_result() -> None:
    with ModelServer("Owls fly at night.") as server:
        model = gpt(server)
        with model.stream_events("What flies?") as stream:
            assert server.requests == 0  # it begins as it is iterated
            frames = list(stream)
        assert types(frames) == ALL
        assert [frame.channel for frame in frames] == ["llm"] * len(frames)
        assert len({frame.data["call_id"] for frame in frames}) == 1
        assert "".join(frame.content for frame in frames) == stream.result == "Owls fly at night."
        kinds = [frame.data.get("call_type") for frame in frames]
        assert kinds == [None, *["llm_call"] * (len(frames) - 1)]
        assert server.paid == 1
        assert not model.stream  # of the call at hand alone


def test_a_tool_is_used_as_call_does() -> None:
    with ModelServer([Rule(None, Call("weather", {"city": "Oslo"}))]) as server:
        found = {"weather": lambda city: f"warm in {city}"}
        stream = gpt(server).stream_events("Weather?", [WEATHER], available_functions=found)
        frames = list(stream)
        uses = [frame.data["tool_call"] for frame in frames if "tool_call" in frame.data]
        # Frames say that tools are asked for, as handlers of CrewAI compare it
        assert [frame.data.get("call_type") for frame in frames][-2:] == [LLMCallType.TOOL_CALL] * 2
        assert uses[-1]["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
        assert stream.result == "warm in Oslo"


def test_what_a_call_raises_comes_out_of_the_iteration() -> None:
    stream = LLM("openai/gpt", base_url="http://127.0.0.1:1/v1", api_key="none", max_retries=0).stream_events("Hi.")
    with pytest.raises(ModelError):
        list(stream)
    assert types(stream.frames) == ["llm_call_started", "llm_call_failed"]


def test_a_call_of_a_task_is_reported_once_and_streamed_each_time(account: Any, attempt: Any) -> None:
    received: list[str] = []

    def work() -> tuple[list[str], list[str], str]:
        stream = model.stream_events("What flies?")
        frames = list(stream)
        return types(frames), [frame.content for frame in frames if frame.content], stream.result

    with ModelServer("Owls fly at night.") as server, event_bus.scoped_handlers():
        model = gpt(server)
        event_bus.on("*")(lambda _, event: received.append(event.type))
        first, again = attempt(work, watched=True), attempt(work, watched=True)
        assert event_bus.flush(10)
        assert first == again == (ALL, first[1], "Owls fly at night.")
        assert (server.paid, account.paid[GPT], account.in_doubt) == (1, 1, 0)
        assert list(dict.fromkeys(received)) == ALL
        assert (received.count(ALL[0]), received.count(ALL[2])) == (1, 1)


@pytest.mark.parametrize("kind", [BaseLLM, LLM])
def test_a_model_of_your_own_gives_what_its_call_gives(kind: type[BaseLLM]) -> None:
    class Echo(kind):
        def call(self, messages: Any, tools: Any = None, **_: Any) -> str:
            return f"You said: {messages}"

    stream = Echo("openai/echo").stream_events("Hello.")
    assert (list(stream), stream.result) == ([], "You said: Hello.")
