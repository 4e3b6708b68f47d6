"""Tools of OpenAI's own kinds, which the author's code performs: shells, patches, computers, custom tools."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from runner.client import Client
from runner.testing import Answer, ModelServer

from .test_kills import pytestmark

__all__ = ["pytestmark"]

AGENT = """
from agents import (
    Agent, ApplyPatchTool, Computer, ComputerTool, CustomTool, LocalShellTool, OpenAIResponsesModel, Runner, ShellTool,
)
from openai import AsyncOpenAI


def note(what):
    with open({trace!r}, "a") as file:
        file.write(what + "\\n")


class Shell:
    uses = 0

    async def __call__(self, request):
        self.uses += 1
        note("shell " + request.data.action.commands[0])
        return f"shell {{self.uses}}"


def local_shell(request):
    note("local " + request.data.action.command[0])
    return "local"


async def custom(context, text):
    note("custom " + text)
    raise ValueError("custom failed")


class Editor:
    def create_file(self, operation):
        note("create " + operation.path)
        return "created"

    async def update_file(self, operation):
        note("update " + operation.path)

    def delete_file(self, operation):
        raise NotImplementedError


class Screen(Computer):
    environment, dimensions, clicks = "browser", (8, 8), 0

    def screenshot(self):
        note("screenshot")
        return f"{{self.clicks}}"

    def click(self, x, y, button):
        self.clicks += 1
        note(f"click {{x}}")

    def double_click(self, x, y): ...
    def scroll(self, x, y, scroll_x, scroll_y): ...
    def type(self, text): ...
    def wait(self): ...
    def move(self, x, y): ...
    def keypress(self, keys): ...
    def drag(self, path): ...


tools = [
    ShellTool(Shell()),
    LocalShellTool(local_shell),
    CustomTool("custom", "Custom.", custom),
    ApplyPatchTool(Editor()),
    ComputerTool(Screen()),
]
model = OpenAIResponsesModel("gpt-5", AsyncOpenAI(base_url={url!r}, api_key="sk-secret"))
agent = Agent("all", model=model, tools=tools)
"""
_SHELL = {"type": "shell_call", "status": "completed", "action": {"commands": ["ls"]}}
_LOCAL = {"command": ["pwd"], "env": {}, "type": "exec"}
_CLICK = {"type": "click", "x": 5, "y": 5, "button": "left"}
_SCREEN = {"type": "computer_call", "pending_safety_checks": [], "status": "completed"}
PLAN: list[dict[str, Any]] = [
    _SHELL,
    _SHELL,
    {"type": "local_shell_call", "status": "completed", "action": _LOCAL},
    {"type": "custom_tool_call", "name": "custom", "input": "text"},
    {"type": "apply_patch_call", "status": "completed", "operation": {"type": "create_file", "path": "a", "diff": "+"}},
    {"type": "apply_patch_call", "status": "completed", "operation": {"type": "update_file", "path": "b", "diff": "+"}},
    _SCREEN | {"actions": [_CLICK]},
    _SCREEN | {"actions": [_CLICK, {"type": "screenshot"}]},
]
USES = {
    "shell ls": 2,
    "local pwd": 1,
    "custom text": 1,
    "create a": 1,
    "update b": 1,
    "click 5": 2,
    "screenshot": 2,
}


def _answer(number: int, results: list[str]) -> Answer:
    item = PLAN[number] | {"id": f"i{number}", "call_id": f"c{number}"} if number < len(PLAN) else _said(results)
    return Answer(
        body=json.dumps(
            {
                "id": f"r{number}",
                "object": "response",
                "created_at": 1,
                "model": "gpt-5",
                "output": [item],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
            }
        )
    )


def _said(results: list[str]) -> dict[str, Any]:
    text = {"type": "output_text", "text": " ".join(results), "annotations": []}
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [text]}


def test_a_use_of_each_kind_of_tool_that_is_openais_own_is_made_once_over_kills(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent with all of them, whose process is killed at the call after each use
    killed: set[int] = set()

    def kill(request: Any) -> Any:
        given = [json.dumps(one) for one in request.body["input"] if one.get("type", "").endswith("_output")]
        if len(given) not in killed and given:
            killed.add(len(given))
            for child in worker.children():
                os.kill(child, signal.SIGKILL)
        return _answer(len(given), given)

    trace = tmp_path / "trace"
    with ModelServer(kill) as models:
        file = tmp_path / "agent.py"
        file.write_text(AGENT.format(url=models.url, trace=str(trace)))
        worker = fleet.start("--concurrency", "1", "--pool", "prefork")
        # When it is run
        result = client.submit(file, {"prompt": "Go."}).wait(250)
    # Then no use was made twice, what the tools keep is there, and an error is told as it was
    assert Counter(trace.read_text().splitlines()) == USES, result.error
    assert killed == set(range(1, len(PLAN) + 1))
    assert result.ledger["tools"]["paid"] == len(PLAN)
    said = result.outputs["agent"]
    assert all(one in said for one in ("shell 2", "custom failed", "created", "base64,2"))
