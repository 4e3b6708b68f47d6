"""Timeouts at random moments around the answers: what is counted as paid, or in doubt, is what was asked for."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from runner.client import Client

from ...support.counting_service import ANSWER, POST, CountingService, counting_service

pytestmark = [pytest.mark.soak, pytest.mark.timeout(170)]

TIMEOUT, MANY = 1.0, 6
EARLY = (-0.2, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2)  #: seconds before the timeout, in which an answer comes


@pytest.fixture
def service() -> Iterator[CountingService]:
    chosen = random.Random(5)

    def wait(said: str, times: int) -> float:
        return float(said.split()[1]) - time.time() - chosen.choice(EARLY) if times == 1 else 0.05

    with counting_service(wait) as server:
        yield server


CREW = (
    POST
    + """
    import asyncio, openai

    MODEL = {{"base_url": {url!r}, "api_key": "k", "max_retries": 0}}

    async def apost(said):
        return await asyncio.to_thread(post, said)

    def said(ctx):
        return f"{{ctx.task.name}} {{ctx.step('at', lambda: time.time() + {timeout})}}"

    def asked(ctx):
        return {{"model": "m", "messages": [{{"role": "user", "content": said(ctx)}}]}}

    def step(ctx):
        return ctx.step("call", post, said(ctx))

    def mapped(ctx):
        return ctx.map(post, [said(ctx)])[0]

    async def to_thread(ctx):
        return await ctx.step("call", apost, said(ctx))

    def client(ctx):
        return openai.OpenAI(**MODEL).chat.completions.create(**asked(ctx)).choices[0].message.content

    def stream(ctx):
        parts = openai.OpenAI(**MODEL).chat.completions.create(stream=True, **asked(ctx))
        return "".join(part.choices[0].delta.content for part in parts)

    async def aclient(ctx):
        answer = await openai.AsyncOpenAI(**MODEL).chat.completions.create(**asked(ctx))
        return answer.choices[0].message.content

    async def astream(ctx):
        parts = await openai.AsyncOpenAI(**MODEL).chat.completions.create(stream=True, **asked(ctx))
        return "".join([part.choices[0].delta.content async for part in parts])

    about = {{"pool": "{pool}", "timeout": {timeout}, "max_retries": 8, "retry_delay": 0.01}}
    crew = Crew(process=Process.graph, tasks=[
        Task(name=f"{{run.__name__}}{{n}}", run=run, **about) for run in ({runs}) for n in range({many})
    ])
"""
)


@pytest.mark.parametrize("pool", ["thread", "process"])
@pytest.mark.parametrize("runs", ["step, mapped, to_thread", "client, stream", "aclient, astream"])
def test_the_count_is_the_services_own(
    runs: str, pool: str, fleet: Any, client: Client, crew_of: Any, service: CountingService
) -> None:
    fleet.start("--concurrency", "6", "--pool", "shared" if pool == "thread" else "prefork")
    crew = crew_of(CREW.format(url=service.url, pool=pool, runs=runs, timeout=TIMEOUT, many=MANY))
    result = client.submit(crew).wait(150)
    assert (result.status, set(result.outputs.values())) == ("completed", {ANSWER})
    asked, ledger, tasks = service.asked, result.ledger, len(result.outputs)
    assert (len(asked), ledger["paid"]) == (tasks, 2 * tasks)  # with the step that says when
    assert sum(asked.values()) <= tasks + ledger["in_doubt"]
    if pool == "thread":  # in which nothing breaks into a call that blocks
        assert all(many == 1 for said, many in asked.items() if said.startswith(("step", "client", "stream")))
