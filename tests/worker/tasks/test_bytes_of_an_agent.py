"""What an agent takes while it waits for its model, in bytes that no load changes: thousands of them wait at a time."""

import sys
from typing import Any

import pytest

from runner.client import Client, prepare

pytestmark = pytest.mark.timeout(300)

MOST = 92_000 if sys.version_info[:2] == (3, 11) else 100_000  #: 88,600: each Python's objects have their own size
SOME, MANY = 20, 100

CREWS = """
    import gc, tracemalloc
    from runner import Agent

    async def count(ctx):
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        gc.collect()
        return str(tracemalloc.get_traced_memory()[0])

    agent = Agent(role="writer", goal="write", backstory="writes", llm="openai/m")
    writing = Crew(agents=[agent], tasks=[Task(name="write", description="Write number {n}.", agent=agent)])
    counting = Crew(tasks=[Task(name="count", run=count)])
"""


def test_an_agent_that_waits_takes_so_many_bytes_at_most(
    fleet: Any, client: Client, crew_of: Any, held_back: Any
) -> None:
    with held_back() as (models, answers):
        # Given a worker, in which some agents wait
        fleet.start("--pool", "shared", **models.environment)
        file = crew_of(CREWS)
        writing, counting = prepare(f"{file}:writing"), prepare(f"{file}:counting")

        def taken() -> int:
            return int(client.submit(counting).wait(60).result or 0)

        taken()
        runs = [client.submit(writing, {"n": str(n)}) for n in range(SOME)]
        models.wait_for(SOME, 120)
        before = taken()
        # When many more do
        runs += [client.submit(writing, {"n": str(n)}) for n in range(MANY)]
        models.wait_for(SOME + MANY, 120)
        each = (taken() - before) / MANY
        # Then each of them has taken no more than this
        answers.set()
        assert {run.wait(120).status for run in runs} == {"completed"}
        assert each <= MOST
