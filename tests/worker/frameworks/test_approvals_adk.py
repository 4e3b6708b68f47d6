"""What apps and workflows of Google's ADK ask a person."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from runner.client import Client

from .test_approvals import GOOGLE, needs, pytestmark

__all__ = ["pytestmark"]

ADK_APP = """
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools import LongRunningFunctionTool, ToolContext
from google.genai import types


class Scripted(BaseLlm):  # as Gemini, it gives uses of tools no ids
    async def generate_content_async(self, request, stream=False):
        said = [part for content in request.contents for part in content.parts]
        used = [part.function_response.response for part in said if part.function_response]
        call = None if used else types.FunctionCall(name="leave", args={"days": 3})
        if used and used[-1].get("days"):
            call = types.FunctionCall(name="ticket", args={})
        part = types.Part(function_call=call) if call else types.Part(text=repr(used))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def leave(days: int, tool_context: ToolContext) -> dict:
    open("TRACE", "a").write("leave\\n")
    if not (given := tool_context.tool_confirmation):
        tool_context.request_confirmation(hint="Approve or reject", payload={"days": 0})
        return {"status": "asked"}
    return {"days": min(days, given.payload["days"])} if given.confirmed else {"days": 0}


def ticket() -> dict:
    open("TRACE", "a").write("ticket\\n")
    return {"status": "pending"}


class Counts(BasePlugin):
    async def before_run_callback(self, *, invocation_context):
        open("TRACE", "a").write("plugged\\n")


tools = [leave, LongRunningFunctionTool(ticket)]
root_agent = LlmAgent(name="desk", model=Scripted(model="scripted"), tools=tools)
app = App(name="desk", root_agent=root_agent, plugins=[Counts(name="counts")])
"""

ADK_WORKFLOW = """
from google.adk import Workflow
from google.adk.events import RequestInput


def ask():
    yield RequestInput(message="Enter a number:")


def double(node_input: int):
    return node_input * 2


root_agent = Workflow(name="doubles", edges=[("START", ask, double)])
"""


@needs(GOOGLE)
def test_an_app_of_adk_asks_for_what_its_tools_want(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given an app whose model gives uses of tools no ids, one that asks for a number, and one that takes long
    file, trace = tmp_path / "agent.py", tmp_path / "trace"
    file.write_text(ADK_APP.replace("TRACE", str(trace)))
    worker = fleet.start("--concurrency", "1", "--pool", "prefork")
    result, asked = client.submit(file, {"prompt": "Go."}).wait(150), []
    # When each is answered in JSON, and the process is killed before that
    for answer in ('{"days": 2}', '{"status": "closed"}'):
        assert result.status == "waiting", result.error
        asked += [one.message for one in result.asked]
        for child in worker.children():
            os.kill(child, signal.SIGKILL)
        result = client.answer(result.run_id, text=answer).wait(150)
    # Then it goes on with what was given, as the app that it is, and no use was made twice
    assert asked == ['May it use leave({"days": 3})? And with what, for {"days": 0}?', "What does ticket({}) give?"]
    assert result.result == repr([{"days": 2}, {"status": "closed"}]), result.error
    assert Counter(trace.read_text().split()) == {"leave": 2, "ticket": 1, "plugged": 1 + 2 + 3}
    assert (result.ledger["tools"]["paid"], result.ledger["tools"]["in_doubt"]) == (3, 0)


@needs(GOOGLE)
def test_a_workflow_of_adk_asks_what_its_nodes_do(fleet: Any, client: Client, tmp_path: Path) -> None:
    (file := tmp_path / "agent.py").write_text(ADK_WORKFLOW)
    fleet.start("--concurrency", "1", "--pool", "prefork")
    waiting = client.submit(file, {"prompt": "Go."}).wait(150)
    assert [one.message for one in waiting.asked] == ["Enter a number:"], waiting.error
    assert client.answer(waiting.run_id, text="21").wait(150).outputs == {"agent": "42"}
