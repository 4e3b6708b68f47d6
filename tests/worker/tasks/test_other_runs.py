"""What the code of a run does fails no other run of its process: each ends, and has paid what it asked for."""

from typing import Any

import pytest

from runner.client import Client

pytestmark = pytest.mark.timeout(120)

OTHERS = """
    import asyncio
    import httpx
    from runner import Agent

    async def asks(ctx):
        address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        async with httpx.AsyncClient(timeout=60) as models:
            for number in range(2):
                messages = [{"role": "user", "content": f"Number {number}."}]
                answer = await models.post(address, json={"model": "m", "messages": messages})
                answer.raise_for_status()
        return "asked"

    agent = Agent(role="writer", goal="write", backstory="writes", llm="openai/m")
    of_agent = Crew(agents=[agent], tasks=[Task(name="write", description="Write.", agent=agent)])
    of_coroutine = Crew(tasks=[Task(name="ask", run=asks)])
"""

HOSTILE = {
    "cancels all coroutines": """
    async def does(ctx):
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(600)
""",
    "ends the loop as `asyncio.run` does": """
    async def does(ctx):
        loop = asyncio.get_running_loop()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()
        loop.stop()
        await asyncio.sleep(0)
        loop.close()
""",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_others_end_as_if_it_were_not_there(
    what: str, fleet: Any, client: Client, crew_of: Any, held_back: Any
) -> None:
    with held_back() as (models, answers):
        fleet.start("--pool", "shared", **models.environment)
        # Given two runs that wait for a model
        others = crew_of(OTHERS, "others")
        runs = [client.submit(f"{others}:{name}") for name in ("of_agent", "of_coroutine")]
        models.wait_for(2, 60)
        # When the code of another one does that, and fails its own run
        hostile = crew_of(
            "    import asyncio\n" + HOSTILE[what] + "\n    crew = Crew(tasks=[Task(name='t', run=does)])\n"
        )
        assert client.submit(hostile).wait(60).status == "failed"
        # Then they go on, and so do the next
        answers.set()
        results = [run.wait(60) for run in runs]
        results += [client.submit(f"{others}:{name}").wait(60) for name in ("of_agent", "of_coroutine")]
    assert [result.status for result in results] == ["completed"] * 4
    assert [result.recoveries for result in results] == [0] * 4
    assert [(result.ledger["paid"], result.ledger["in_doubt"]) for result in results] == [(1, 0), (2, 0)] * 2
    assert models.summary()["requests"] == 6


FORKS = """
    import sys

    def forks(ctx):
        if child := os.fork():
            return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        {ends}

    def follows(ctx):
        return str(os.getppid())

    crew = Crew(tasks=[Task(name="t", run=forks)])
    following = Crew(tasks=[Task(name="t", run=follows)])
"""


@pytest.mark.parametrize(("ends", "code"), [("sys.exit(3)", "3"), ("return 'child'", "0"), ("raise ValueError", "1")])
def test_a_process_that_a_task_forks_ends_where_its_code_does(
    ends: str, code: str, fleet: Any, client: Client, crew_of: Any
) -> None:
    worker = fleet.start("--concurrency", "1")
    crew = crew_of(FORKS.format(ends=ends))
    assert client.submit(f"{crew}:crew").wait(60).result == code
    assert client.submit(f"{crew}:following").wait(60).result == str(worker.main_pid()), "of the pool, and no other"


SHARES = """
    import asyncio

    shared = []

    async def waits(ctx):
        if ctx.attempt == 1:
            shared.append(asyncio.get_running_loop().create_future())
            trace("waits")
            await shared[0]
        return f"attempt {ctx.attempt}"

    async def cancels(ctx):
        return str(shared[0].cancel())

    waiting = Crew(tasks=[Task(name="t", run=waits)])
    cancelling = Crew(tasks=[Task(name="t", run=cancels)])
"""


def test_one_whose_coroutine_awaits_what_another_run_cancels_gets_another_attempt(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    fleet.start("--pool", "shared")
    crew = crew_of(SHARES)
    run = client.submit(f"{crew}:waiting")
    eventually(lambda: "waits" in trace.lines(), why="it waits")
    assert client.submit(f"{crew}:cancelling").wait(60).result == "True"
    assert run.wait(60).result == "attempt 2"


KILLS = """
    import httpx, time
    from pathlib import Path
    from runner import Agent

    def asked(models, number):
        text = {"role": "user", "content": f"Number {number}."}
        address = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
        return models.post(address, json={"model": "m", "messages": [text]})

    async def awaits(ctx):
        async with httpx.AsyncClient(timeout=60) as models:
            (await asked(models, 1)).raise_for_status()
        return "asked"

    def waits(ctx):
        with httpx.Client(timeout=60) as models:
            asked(models, 2).raise_for_status()
        return "asked"

    async def kills(ctx):
        while not Path(ctx.inputs["folder"], str(ctx.attempt)).exists():
            await asyncio.sleep(0.01)
        os._exit(1)

    import asyncio
    agent = Agent(role="writer", goal="write", backstory="writes", llm="openai/m")
    of_agent = Crew(agents=[agent], tasks=[Task(name="write", description="Write.", agent=agent)])
    of_coroutine = Crew(tasks=[Task(name="ask", run=awaits)])
    of_function = Crew(tasks=[Task(name="ask", run=waits, pool="thread")])
    of_killer = Crew(tasks=[Task(name="kill", run=kills)])
"""
MOST = 5  #: deaths in a row without progress, of which a task fails


def test_one_that_kills_its_process_each_time_fails_alone(
    fleet: Any, client: Client, crew_of: Any, held_back: Any, tmp_path: Any
) -> None:
    with held_back() as (models, answers):
        fleet.start("--pool", "auto", "--concurrency", "4", **models.environment)
        crew = crew_of(KILLS)
        runs = [client.submit(f"{crew}:{name}") for name in ("of_agent", "of_coroutine", "of_function")]
        killer = client.submit(f"{crew}:of_killer", {"folder": str(tmp_path)})
        # Given three others that are in flight at each death of their process, and record nothing in between
        for death in range(1, MOST):
            models.wait_for(len(runs) * death, 60)
            (tmp_path / str(death)).touch()
        # When its last attempt kills its process too, it fails
        models.wait_for(len(runs) * MOST, 60)
        (tmp_path / str(MOST)).touch()
        assert f"its worker died {MOST} times in a row without making progress" in str(killer.wait(60).error)
        # Then the others go on
        answers.set()
        results = [run.wait(60) for run in runs]
    assert [result.status for result in results] == ["completed"] * 3, [result.error for result in results]
    assert [(one.ledger["paid"], one.ledger["in_doubt"]) for one in results] == [(1, MOST - 1)] * 3
    assert models.summary()["requests"] == len(runs) * MOST
