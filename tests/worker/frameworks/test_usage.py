"""The usage that an agent of pydantic-ai counts is what it is without a kill, with agents that its tools ran."""

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
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(base_url={url!r}, api_key="sk-secret"))
digger, chief = Agent(model), Agent(model)


@digger.tool_plain
async def dig(i: int) -> str:
    with open({trace!r}, "a") as file:
        file.write(f"dig {{i}}\\n")
    return f"part {{i}}"


@chief.tool
async def send(ctx: RunContext, i: int) -> str:
    await asyncio.sleep(i / 5)
    return (await digger.run(f"Dig {{i}}.", usage=ctx.usage)).output


@chief.tool_plain
async def rest(i: int) -> str:
    with open({trace!r}, "a") as file:
        file.write(f"rest {{i}}\\n")
    return "rested"


result = chief.run_sync("Lead.")
used = result.usage() if callable(result.usage) else result.usage
print(result.output, used.requests, used.tool_calls, used.input_tokens)
"""


def test_the_usage_of_agents_that_tools_ran_is_there_after_a_kill(fleet: Any, client: Client, tmp_path: Path) -> None:
    # Given an agent that sends two others at once, and whose process is killed at its last call
    killed: list[int] = []

    def kill(request: Any) -> Any:
        asked = str(request.body["messages"][0]["content"])
        if asked.startswith("Dig"):
            used = [Call("dig", {"i": int(asked.split()[1].strip("."))})]
            return Answer("dug", usage=(10, 1)) if request.results else Answer(calls=used, usage=(10, 1))
        if not request.results:
            return Answer(calls=[Call("send", {"i": 0}), Call("send", {"i": 1}), Call("rest", {"i": 0})], usage=(10, 1))
        if not killed:
            killed.extend(worker.children())
            for child in killed:
                os.kill(child, signal.SIGKILL)
        return Answer("done", usage=(10, 1))

    trace = tmp_path / "trace"
    with ModelServer(kill) as models:
        file = tmp_path / "agent.py"
        file.write_text(AGENT.format(url=models.url, trace=str(trace)))
        worker = fleet.start("--concurrency", "1", "--pool", "prefork")
        # When it is run
        result = client.submit(file).wait(150)
    # Then its usage is that of six requests and five uses, as alone, and no tool was used again
    assert result.outputs == {"main": "done 6 5 60"}, result.error
    assert killed
    assert Counter(trace.read_text().splitlines()) == {"dig 0": 1, "dig 1": 1, "rest 0": 1}
