"""What is a tool without being made of a function: toolsets of the author's, and functions that make the output."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from runner.client import Client
from runner.testing import Answer, Call, ModelServer

from .test_kills import pytestmark

__all__ = ["pytestmark"]

AGENT = """
from pydantic import TypeAdapter
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

ARGUMENTS = TypeAdapter(dict[str, int])


def note(what):
    with open({trace!r}, "a") as file:
        file.write(what + "\\n")


class Looks(AbstractToolset):
    id = "looks"
    seen = 0

    async def get_tools(self, ctx):
        described = ToolDefinition(name="look", parameters_json_schema=ARGUMENTS.json_schema())
        checks = ARGUMENTS.validator
        return {{"look": ToolsetTool(toolset=self, tool_def=described, max_retries=1, args_validator=checks)}}

    async def call_tool(self, name, tool_args, ctx, tool):
        note("look")
        self.seen += 1
        return self.seen


looks = Looks()


def finish(ctx: RunContext, amount: int) -> str:
    note(f"finish {{amount}}")
    if amount == 0:
        raise ModelRetry("more")
    return f"paid {{amount}}, saw {{looks.seen}}"


model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url={url!r}, api_key="sk-secret"))
agent = Agent(model, toolsets=[looks], output_type=finish)
"""
PLAN = [Call("look", {"i": 0}), Call("final_result", {"amount": 0}), Call("final_result", {"amount": 1})]


def test_a_toolset_of_the_author_and_an_output_function_are_not_called_again_after_a_kill(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent with both, whose process is killed at the call after each was used
    killed: list[int] = []

    def kill(request: Any) -> Any:
        if len(request.results) == len(PLAN) - 1 and not killed:
            killed.extend(worker.children())
            for child in killed:
                os.kill(child, signal.SIGKILL)
        return Answer(calls=[PLAN[len(request.results)]])

    trace = tmp_path / "trace"
    with ModelServer(kill) as models:
        file = tmp_path / "agent.py"
        file.write_text(AGENT.format(url=models.url, trace=str(trace)))
        worker = fleet.start("--concurrency", "1", "--pool", "prefork")
        # When it is run
        result = client.submit(file, {"prompt": "Pay."}).wait(150)
    # Then each of their uses was made once, and what the toolset kept is there
    assert result.outputs == {"agent": "paid 1, saw 1"}, result.error
    assert Counter(trace.read_text().splitlines()) == {"look": 1, "finish 0": 1, "finish 1": 1}
    assert killed
    assert result.ledger["tools"]["paid"] == len(PLAN)
