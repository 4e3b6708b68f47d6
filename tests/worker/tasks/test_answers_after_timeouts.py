"""An answer that has come is recorded before the timeout of its task is raised: no attempt pays for it again."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

from ...support.counting_service import ANSWER, POST, CountingService, counting_service

SLOW = 2.5  #: seconds that an answer takes, so that it comes after the timeout of its task
SOON = 1.5  #: the same, so that it comes soon after that


@pytest.fixture
def service() -> Iterator[CountingService]:
    with counting_service(lambda said, _: SOON if said == "soon" else SLOW) as server:
        yield server


CREW = (
    POST
    + """
    import concurrent.futures
    from runner import LLM

    def step(ctx):
        return ctx.step("call", post, "it")

    def in_its_own_threads(ctx):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return pool.submit(ctx.step, "call", post, "it").result()

    async def blocking(ctx):
        async def call():
            return post("it")
        return await ctx.step("call", call)

    def mapped(ctx):
        return ctx.map(post, ["soon"])[0]

    def model(ctx):
        return LLM(model="openai/m").call("Say something.")

    crew = Crew(tasks=[Task(name="t", run={run}, pool="{pool}", timeout=1.0, max_retries=2, retry_delay=0.01)])
"""
)


@pytest.mark.parametrize(
    ("run", "pool"),
    [
        ("step", "thread"),
        ("blocking", "thread"),
        ("in_its_own_threads", "thread"),
        ("mapped", "thread"),
        ("mapped", "process"),
    ],
)
def test_what_a_call_gave_after_the_timeout_is_not_paid_again(
    run: str, pool: str, fleet: Any, client: Client, crew_of: Any, service: CountingService
) -> None:
    # Given a call that blocks its thread for longer than its task may take
    fleet.start("--pool", "shared" if pool == "thread" else "prefork")
    handle = client.submit(crew_of(CREW.format(url=service.url, run=run, pool=pool)))
    # When it is answered, then the attempt fails, and the next one has the answer
    result = handle.wait(60)
    assert (result.status, result.result) == ("completed", ANSWER)
    assert (service.asked.total(), result.ledger["paid"], result.ledger["in_doubt"]) == (1, 1, 0)
    (retried,) = (event for event in handle.events() if event.type == "task_retried")
    assert "longer than its timeout of 1 s" in retried.fields["reason"]


def test_what_a_model_answered_after_the_timeout_is_not_paid_again(fleet: Any, client: Client, crew_of: Any) -> None:
    def answer(_: Any) -> str:
        time.sleep(SLOW)
        return "here"

    with ModelServer(answer) as models:
        fleet.start("--pool", "shared", **models.environment)
        result = client.submit(crew_of(CREW.format(url="", run="model", pool="thread"))).wait(60)
        assert (result.status, result.result) == ("completed", "here")
        assert (models.summary()["requests"], result.ledger["paid"], result.ledger["in_doubt"]) == (1, 1, 0)


UNINTERRUPTED = """
    import ctypes

    def call():
        ended = time.monotonic() + 0.9
        while time.monotonic() < ended:  # the C library's own ends by any signal, and no handler is called in it
            ctypes.CDLL(None).sleep(60)
        trace("step call")
        return "here"

    def run(ctx):
        return ctx.step("call", call)

    crew = Crew(tasks=[Task(name="t", run=run, timeout=1.0, max_retries=2, retry_delay=0.01)])
"""


def test_what_a_call_gave_as_the_signal_of_the_timeout_came_is_not_paid_again(
    fleet: Any, client: Client, crew_of: Any, trace: Any
) -> None:
    fleet.start("--concurrency", "1")
    handle = client.submit(crew_of(UNINTERRUPTED))
    result = handle.wait(60)
    assert (result.status, result.result) == ("completed", "here")
    assert (trace.steps().total(), result.ledger["paid"], result.ledger["in_doubt"]) == (1, 1, 0)
    assert sum(event.type == "task_retried" for event in handle.events()) == 1


BLOCKS_ITS_LOOP = """
    async def run(ctx):
        if ctx.attempt == 1:
            time.sleep(1.2)
        return f"attempt {ctx.attempt}"

    crew = Crew(tasks=[Task(name="t", run=run, pool="%s", timeout=1.0, max_retries=2, retry_delay=0.01)])
"""


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_coroutine_that_blocks_its_loop_fails_by_its_timeout_in_each_pool(
    pool: str, fleet: Any, client: Client, crew_of: Any
) -> None:
    fleet.start("--concurrency", "1", "--pool", "shared" if pool == "thread" else "prefork")
    result = client.submit(crew_of(BLOCKS_ITS_LOOP % pool)).wait(60)
    assert (result.status, result.result) == ("completed", "attempt 2")
