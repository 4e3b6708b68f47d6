"""A kill in the middle of `ctx.map` loses nothing; what it repeats is in doubt, and no more than was at once."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client

MAP = """
    def item(i):
        if i == 100:
            trace(f"pid {{os.getpid()}}")
            hold("item")
        trace(f"step item {{i}}")
        return i

    async def aitem(i):
        return item(i)

    async def amapped(ctx):
        return str(sum(await ctx.amap(aitem, range(200), at_once=8)))

    def mapped(ctx):
        return str(sum(ctx.map(item, range(200), at_once=8)))

    crew = Crew(tasks=[Task(name="all", run={run}, pool="{pool}")])
"""


@pytest.mark.parametrize(("run", "pool"), [("mapped", "process"), ("amapped", "process"), ("mapped", "thread")])
def test_a_kill_in_the_middle_repeats_what_was_under_way(
    run: str, pool: str, fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any
) -> None:
    # Given a map of 200 items in its middle, with one of eight in a call
    for _ in range(2 if pool == "thread" else 1):
        fleet.start("--concurrency", "1", "--pool", "shared" if pool == "thread" else "prefork")
    handle = client.submit(crew_of(MAP.format(run=run, pool=pool)))
    eventually(lambda: trace.held("item"), why="it is in the middle")
    (process,) = {int(line.split()[1]) for line in trace.lines() if line.startswith("pid ")}
    # When its process is killed
    os.kill(process, signal.SIGKILL)
    trace.let_go()
    # Then all is there, and what was done twice is in doubt
    result = handle.wait(60)
    assert result.outputs == {"all": str(sum(range(200)))}
    assert trace.repeated() <= result.ledger["in_doubt"] <= 8
    assert result.ledger["paid"] == 200
    assert result.ledger["replayed"] >= 85


QUICK = """
    def item(i):
        trace(f"step item {i}")
        return i

    def mapped(ctx):
        return str(sum(ctx.map(item, range(400), at_once=32)))

    crew = Crew(tasks=[Task(name="all", run=mapped, pool="process")])
"""


@pytest.mark.parametrize(
    "point", ["steps sent to the store, not acknowledged", "step recorded, task not ended", "step begun, not done"]
)
def test_a_kill_between_its_writes_repeats_what_was_under_way(
    point: str, fleet: Any, client: Client, crew_of: Any, trace: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", RUNNER_CRASH_AT=f"{point}:{flag}")
    result = client.submit(crew_of(QUICK)).wait(60)
    assert flag.exists()
    assert result.outputs == {"all": str(sum(range(400)))}
    assert trace.repeated() <= result.ledger["in_doubt"] <= 32
    assert result.ledger["paid"] == 400
