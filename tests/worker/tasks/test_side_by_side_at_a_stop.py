"""Calls of coroutines side by side, as their task is stopped: each that is answered in time is recorded."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client
from runner.testing import ModelServer

CREW = """
    import asyncio, httpx, threading, time
    from pathlib import Path
    from runner.journal.current_journal import active_journal

    def tell_of_stop(scope):
        while scope.stopping is None:
            time.sleep(0.01)  # nothing calls back when a task is to stop
        Path({stopped!r}).touch()

    async def gathered(ask, ctx):
        return await asyncio.gather(*map(ask, {texts!r}))

    async def grouped(ask, ctx):
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(text)) for text in {texts!r}]
        return [one.result() for one in asked]

    async def in_steps(ask, ctx):
        return await asyncio.gather(*[ctx.step("ask", ask, text) for text in {texts!r}])

    async def mapped(ask, ctx):
        return await ctx.amap(ask, {texts!r}, at_once=8)

    async def run(ctx):
        threading.Thread(target=tell_of_stop, args=(active_journal().cancel_scope,), daemon=True).start()
        async with httpx.AsyncClient(timeout=60) as client:
            async def ask(text):
                asked = {{"model": "gpt", "messages": [{{"role": "user", "content": text}}]}}
                said = await client.post({url!r} + "/chat/completions", json=asked)
                return said.json()["choices"][0]["message"]["content"]

            found = await {way}(ask, ctx)
            return " ".join([*found, await ask("then")])

    crew = Crew(tasks=[Task(name="t", run=run, pool={pool!r}{more})])
"""
TEXTS = ["a", "b", "c", "d"]


POOLS = {"process": "prefork", "thread": "shared", None: "shared"}
"""Of a task, and of its worker. Where its author says nothing, coroutines of all tasks share a loop."""
WAYS = ["gathered", "grouped", "in_steps", "mapped"]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("way", WAYS)
def test_a_drain_leaves_none_in_doubt_that_is_answered_in_time(
    way: str, pool: str | None, fleet: Any, client: Client, crew_of: Any, eventually: Any, tmp_path: Path
) -> None:
    # Given a task with several calls out
    gates = {text: threading.Event() for text in TEXTS}

    def answer(request: Any) -> str:
        if request.last in TEXTS:
            gates[request.last].wait(60)
        return f"({request.last})"

    with ModelServer(answer) as server:
        about = ("--concurrency", "1", "--pool", POOLS[pool])
        worker = fleet.start(*about, "--drain-timeout", "40")
        about_crew = {"texts": TEXTS, "url": server.url, "stopped": str(tmp_path / "stopped")}
        crew = crew_of(CREW.format(**about_crew, way=way, pool=pool, more=""))
        handle = client.submit(crew, checkpoint_on=["SIGTERM"])
        eventually(lambda: server.requests == len(TEXTS), why="all of them are asked")
        # When its worker drains, and they are answered one after the other
        worker.terminate()
        eventually(lambda: client.checkpoints(handle.id), why="the task's process has heard of it")
        for count, gate in enumerate(gates.values(), 1):
            gate.set()
            eventually(lambda n=count: handle.result().ledger["paid"] >= n, why="it is recorded")
        assert worker.process.wait(30) == 0
        # Then none is asked again
        fleet.start(*about)
        result = handle.wait(60)
        assert result.outputs == {"t": "(a) (b) (c) (d) (then)"}
        assert Counter(one.last for one in server.log) == Counter([*TEXTS, "then"])
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (len(TEXTS) + 1, 0)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("way", WAYS)
def test_a_timeout_leaves_none_in_doubt_that_is_answered_soon(
    way: str, pool: str | None, fleet: Any, client: Client, crew_of: Any, eventually: Any, tmp_path: Path
) -> None:
    stopped = tmp_path / "stopped"

    def answer(request: Any) -> str:
        if request.last in TEXTS:  # not after so many seconds: those that the task waits for the store are not its own
            eventually(stopped.exists, why="its time is up")
        return f"({request.last})"

    with ModelServer(answer) as server:
        fleet.start("--concurrency", "1", "--pool", POOLS[pool])
        more = ", timeout=1.0, max_retries=2, retry_delay=0.01"
        about_crew = {"texts": TEXTS, "url": server.url, "stopped": str(stopped)}
        handle = client.submit(crew_of(CREW.format(**about_crew, way=way, pool=pool, more=more)))
        result = handle.wait(60)
        assert result.outputs == {"t": "(a) (b) (c) (d) (then)"}
        assert Counter(one.last for one in server.log) == Counter([*TEXTS, "then"])
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (len(TEXTS) + 1, 0)
    assert "task_retried" in [event.type for event in handle.events()]
