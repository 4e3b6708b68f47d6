"""Hooks run again when a task restarts: what they change in the context is not there twice."""

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
import asyncio
import dataclasses
from agents import Agent, AgentHooks, OpenAIChatCompletionsModel, RunContextWrapper, RunHooks, Runner, function_tool
from openai import AsyncOpenAI


@dataclasses.dataclass
class Kept:
    used: list[int] = dataclasses.field(default_factory=list)
    began: int = 0
    ended: list[str] = dataclasses.field(default_factory=list)


class Counts(RunHooks):
    async def on_tool_start(self, context, agent, tool):
        context.context.began += 1

    async def on_tool_end(self, context, agent, tool, result):
        await asyncio.sleep(0)
        context.context.ended.append(result)


class Marks(AgentHooks):
    async def on_tool_end(self, context, agent, tool, result):
        context.context.used.append(-1)


@function_tool
async def dig(context: RunContextWrapper[Kept], i: int) -> str:
    with open({trace!r}, "a") as file:
        file.write(f"{{i}}\\n")
    context.context.used.append(i)
    await asyncio.sleep(i / 5)
    context.context.used.append(i)
    return f"part {{i}}"


model = OpenAIChatCompletionsModel("gpt-4o", AsyncOpenAI(base_url={url!r}, api_key="sk-secret"))
agent = Agent("counter", model=model, tools=[dig], hooks=Marks())
kept = Kept()
Runner.run_sync(agent, "Dig.", context=kept, hooks=Counts())
print(sorted(kept.used), kept.began, sorted(kept.ended))
"""


def test_what_hooks_change_beside_concurrent_tool_uses_is_changed_once_over_a_kill(
    fleet: Any, client: Client, tmp_path: Path
) -> None:
    # Given an agent with hooks that change the context while other tools of the same call run
    killed: list[int] = []

    def kill(request: Any) -> Any:
        if request.results and not killed:
            killed.extend(worker.children())
            for child in killed:
                os.kill(child, signal.SIGKILL)
        return Answer("done") if request.results else Answer(calls=[Call("dig", {"i": i}) for i in range(3)])

    trace = tmp_path / "trace"
    with ModelServer(kill) as models:
        file = tmp_path / "agent.py"
        file.write_text(AGENT.format(url=models.url, trace=str(trace)))
        worker = fleet.start("--concurrency", "1", "--pool", "prefork")
        # When its process is killed after them
        result = client.submit(file).wait(150)
    # Then the context is as it is without a kill, and no tool was used twice
    told = "[-1, -1, -1, 0, 0, 1, 1, 2, 2] 3 ['part 0', 'part 1', 'part 2']"
    assert result.outputs == {"main": told}, result.error
    assert killed
    assert Counter(trace.read_text().split()) == {"0": 1, "1": 1, "2": 1}
