"""A framework that tells an error as its answer, and raises none: the task fails. Without any of them."""

import asyncio
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from runner.adapters.frameworks.agno import Agno
from runner.adapters.frameworks.google_adk import GoogleADK
from runner.adapters.frameworks.smolagents import Smolagents
from runner.adapters.frameworks.strands import Strands
from runner.core.errors import TaskError

PROMPT = {"prompt": "Dig."}


def status(name: str) -> Any:
    return SimpleNamespace(value=name)


def agno_gives(**answer: Any) -> Any:
    async def arun(**_: Any) -> Any:
        return SimpleNamespace(**answer)

    return asyncio.run(Agno().run(SimpleNamespace(arun=arun), PROMPT))


def test_an_agno_run_that_did_not_complete_fails() -> None:
    with pytest.raises(TaskError, match="ended the run as error: out of order"):
        agno_gives(status=status("ERROR"), content="out of order")
    failed = SimpleNamespace(success=False, step_name="dig", error="out of order", content=None)
    done = SimpleNamespace(success=True)
    for last in (failed, [done, failed]):
        with pytest.raises(TaskError, match="the last step, dig, failed: out of order"):
            agno_gives(status="COMPLETED", content="out of order", step_results=[done, last])
    assert agno_gives(status="COMPLETED", content="done", step_results=[failed, done]) == "done"
    assert agno_gives(content="done") == "done"


def test_a_swarm_of_strands_that_did_not_complete_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "strands", SimpleNamespace(Agent=type("Agent", (), {})))

    def gives(ended: str, **results: Any) -> Any:
        async def invoke_async(_: Any) -> Any:
            return SimpleNamespace(status=status(ended), results=results)

        return asyncio.run(Strands().run(SimpleNamespace(invoke_async=invoke_async), PROMPT))

    done = SimpleNamespace(status=status("completed"), result="done\n")
    refused = ValueError("out of order")
    with pytest.raises(TaskError, match="ended the run as failed: two: out of order") as raised:
        gives("failed", one=done, two=SimpleNamespace(status=status("failed"), result=refused))
    assert raised.value.__cause__ is refused
    with pytest.raises(TaskError, match="one of its limits"):
        gives("failed", one=done)
    assert gives("completed", one=done) == {"one": "done"}


def test_smolagents_fails_whose_final_answer_is_refused() -> None:
    def gives(answer: Any) -> Any:
        return Smolagents().run(SimpleNamespace(run=lambda _: answer), PROMPT)

    with pytest.raises(TaskError, match="out of order"):
        gives([{"type": "text", "text": "Error in generating final LLM output: out of order"}])
    for answer in ("done", ["done"], [{"text": "done"}], [{"type": "text"}], []):
        assert gives(answer) == answer


def test_adk_fails_where_an_error_took_the_place_of_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    def event(text: str = "", error: str | None = None) -> Any:
        return SimpleNamespace(
            content=SimpleNamespace(parts=[SimpleNamespace(text=text)]) if text else None,
            error_code=error,
            error_message="out of order" if error else None,
            long_running_tool_ids=None,
            invocation_id="1",
            is_final_response=lambda: True,
            get_function_calls=list,
        )

    def gives(*events: Any) -> Any:
        class Runner:
            app_name = "one"

            def __init__(self, **_: Any) -> None:
                self.session_service = self

            async def create_session(self, **_: Any) -> Any:
                return SimpleNamespace(id="1")

            async def run_async(self, **_: Any) -> AsyncIterator[Any]:
                for one in events:
                    yield one

        types = SimpleNamespace(Part=SimpleNamespace, Content=SimpleNamespace)
        monkeypatch.setitem(sys.modules, "google.genai.types", types)
        monkeypatch.setitem(sys.modules, "google.adk.runners", SimpleNamespace(InMemoryRunner=Runner))
        return asyncio.run(GoogleADK().run(object(), PROMPT))

    for events in ([event(error="SAFETY")], [event("begun"), event(error="SAFETY")]):
        with pytest.raises(TaskError, match="SAFETY: out of order"):
            gives(*events)
    assert gives(event(error="SAFETY"), event("done")) == "done"
    assert gives(event("as far as", error="MAX_TOKENS")) == "as far as"
