"""A client that a file keeps at its top level serves all tasks of its worker, whichever event loop each has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

from ...support.soak import in_soak

CREW = """
import asyncio
import {library}
from runner import Crew, Task

{client}


async def both(ctx):
    return " ".join(await asyncio.gather(*(ask(ctx.inputs["n"] + one) for one in "ab")))


crew = Crew(tasks=[
    Task(name="on a loop of its own", run=lambda ctx: asyncio.run(both(ctx))),
    Task(name="on the worker's", run=both),
    Task(name="again", run=lambda ctx: asyncio.run(both(ctx))),
])
"""
OPENAI = """
client = openai.AsyncOpenAI(base_url={url!r}, api_key="k")


async def ask(text):
    said = await client.chat.completions.create(model="gpt-4o", messages=[{{"role": "user", "content": text}}])
    return said.choices[0].message.content
"""
ANTHROPIC = """
client = anthropic.AsyncAnthropic(base_url={url!r}.removesuffix("/v1"), api_key="k")


async def ask(text):
    said = await client.messages.create(model="gpt", max_tokens=9, messages=[{{"role": "user", "content": text}}])
    return said.content[0].text
"""
AGENTS = """
import agents

agents.set_tracing_disabled(True)
model = agents.OpenAIChatCompletionsModel("gpt-4o", openai.AsyncOpenAI(base_url={url!r}, api_key="k"))


async def ask(text):
    return (await agents.Runner.run(agents.Agent(name="a", model=model), text)).final_output
"""
WAYS = {"openai": ("openai", OPENAI), "anthropic": ("anthropic", ANTHROPIC), "agents": ("openai", AGENTS)}
POOLS = ("prefork", "threads", "shared")
OTHERS = [(way, pool) for way in ("anthropic", "agents") for pool in POOLS[:2]]


@pytest.mark.parametrize(
    ("way", "pool"),
    [*(("openai", pool) for pool in POOLS), ("anthropic", "shared"), ("agents", "shared"), *in_soak(*OTHERS)],
)
def test_it_serves_each_run(way: str, pool: str, fleet: Any, client: Client, write_crew: Callable[..., Path]) -> None:
    library, code = WAYS[way]
    with ModelServer(lambda request: f"<{request.text}>") as models:
        fleet.start("--concurrency", "1", "--pool", pool)
        crew = write_crew(CREW.format(library=library, client=code.format(url=models.url)))
        for n in "123":
            result = client.submit(crew, inputs={"n": n}).wait(120)
            assert result.status == "completed", result.error
            assert set(result.outputs.values()) == {f"<{n}a> <{n}b>"}
        assert models.paid == 18
