"""A client that a file keeps at its top level serves all tasks of its worker, whichever event loop each has."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

from ...support.soak import in_soak
from .test_approvals import needs

_FOUND = runpy.run_path(str(Path(__file__).parents[3] / "ops" / "chaos" / "matrix_models.py"))
MODELS, DONE = _FOUND["Models"], _FOUND["DONE"]

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
LITELLM = """
async def ask(text):
    said = await litellm.acompletion(
        model="openai/gpt-4o", api_base={url!r}, api_key="k", messages=[{{"role": "user", "content": text}}]
    )
    return said.choices[0].message.content
"""
GOOGLE = """
client = google.genai.Client(api_key="k", http_options={{"base_url": {url!r}}})


async def ask(text):
    return (await client.aio.models.generate_content(model="gemini-2.5-flash", contents=text)).text
"""
WAYS = {
    "openai": ("openai", OPENAI),
    "anthropic": ("anthropic", ANTHROPIC),
    "agents": ("openai", AGENTS),
    "litellm": ("litellm", LITELLM),
}
POOLS = ("prefork", "threads", "shared")
OTHERS = [(way, pool) for way in ("anthropic", "agents") for pool in POOLS[:2]]


@pytest.mark.parametrize(
    ("way", "pool"),
    [
        *(("openai", pool) for pool in POOLS),
        *((way, "shared") for way in ("anthropic", "agents")),
        *(pytest.param("litellm", pool, marks=needs("litellm")) for pool in POOLS),
        *in_soak(*OTHERS),
    ],
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


@pytest.mark.parametrize("pool", ["shared", *in_soak(*POOLS[:2])])
def test_one_of_google_serves_each_run(pool: str, fleet: Any, client: Client, write_crew: Callable[..., Path]) -> None:
    with MODELS(()) as models:  # which say the same to whatever they are asked
        fleet.start("--concurrency", "1", "--pool", pool)
        crew = write_crew(CREW.format(library="google.genai", client=GOOGLE.format(url=models.root)))
        for n in "123":
            result = client.submit(crew, inputs={"n": n}).wait(120)
            assert result.status == "completed", result.error
            assert set(result.outputs.values()) == {f"{DONE} {DONE}"}
        assert models.requests.total() == 18
