"""One worker with ``--pool auto`` has hundreds of tasks that wait in flight, and a process for each other."""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from runner.cli.fleet import worker as command
from runner.client import Client, prepare
from runner.core.settings import INTERNAL
from runner.testing import RedisServer
from runner.testing.fleet import children_of

pytestmark = pytest.mark.timeout(300)

AGENTS = 200

WRITER = """
    from runner import Agent

    agent = Agent(role="writer", goal="write", backstory="writes", llm="openai/m")
    crew = Crew(agents=[agent], tasks=[Task(name="write", description="Write number {n}.", agent=agent)])
"""
PLACES = """
    import asyncio, threading

    def here():
        return "process" if threading.current_thread() is threading.main_thread() else "thread"

    def plain(ctx):
        return here()

    async def awaited(ctx):
        await asyncio.sleep(0)
        return here()

    plainly = Crew(tasks=[Task(name="t", run=plain)])
    said = Crew(tasks=[Task(name="t", run=plain, pool="thread")])
    awaiting = Crew(tasks=[Task(name="t", run=awaited)])
    said_otherwise = Crew(tasks=[Task(name="t", run=awaited, pool="process")])
    mixed = Crew(tasks=[Task(name=f"t{n}", run=(plain, awaited)[n % 2]) for n in range(4)])
    beside = [Task(name=f"b{n}", run=(plain, awaited)[n % 2], async_execution=True) for n in range(4)]
    mixed_beside = Crew(tasks=[*beside, Task(name="last", run=awaited)])
    blocking = Crew(tasks=[Task(name="t", run=lambda ctx: time.sleep(600), timeout=0.5)])
"""


def test_all_wait_at_once_and_a_kill_hands_all_over(
    fleet: Any, client: Client, crew_of: Any, eventually: Any, tmp_path: Any, held_back: Any
) -> None:
    with held_back() as (models, answers):
        # Given a worker with the settings that it has by itself, and runs of one agent each
        worker = fleet.start("--pool", "auto", **models.environment)
        # They are forks of the one that imported for all of them
        said = {Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (worker.pid, *children_of(worker.pid))}
        assert len(said) == 1
        crew = prepare(str(crew_of(WRITER)))
        runs = [client.submit(crew, {"n": str(n)}) for n in range(AGENTS)]

        # When all of them ask their models at the same time, and the worker is killed
        models.wait_for(AGENTS, 120)
        assert models.at_once == AGENTS
        worker.kill_group()
        answers.set()

        # Then another does all of them, and what was asked twice is in doubt
        fleet.start("--pool", "auto", **models.environment)
        results = [run.wait(120) for run in runs]
        assert [result.status for result in results] == ["completed"] * AGENTS
        assert sum(result.ledger["paid"] for result in results) == AGENTS
        doubt = sum(result.ledger["in_doubt"] for result in results)
        assert doubt == AGENTS
        assert models.summary()["requests"] == AGENTS + doubt


def test_a_task_is_done_where_its_kind_or_its_author_says(fleet: Any, client: Client, crew_of: Any) -> None:
    fleet.start("--pool", "auto", "--concurrency", "1")
    file = crew_of(PLACES)
    runs = {name: client.submit(f"{file}:{name}") for name in ("plainly", "said", "awaiting", "said_otherwise")}
    assert {name: run.wait(60).result for name, run in runs.items()} == {
        "plainly": "process", "said": "thread", "awaiting": "thread", "said_otherwise": "process",
    }  # fmt: skip


@pytest.mark.parametrize("time_slice", ["0", "60"])
@pytest.mark.parametrize("relayed", [False, True])
def test_each_task_of_a_run_is_done_in_its_place(
    relayed: bool, time_slice: str, fleet: Any, crew_of: Any, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"RUNNER_TIME_SLICE": time_slice, "RUNNER_RESEND_AFTER": "60"}  # all that is sent arrives
    with contextlib.ExitStack() as stack:
        if relayed:
            settings["RUNNER_BROKER_URL"] = stack.enter_context(RedisServer()).url
            monkeypatch.setenv("RUNNER_BROKER_URL", settings["RUNNER_BROKER_URL"])
        client = stack.enter_context(Client(server.url))
        fleet.start("--pool", "auto", "--concurrency", "2", **settings)
        file = crew_of(PLACES)
        runs = [client.submit(f"{file}:{name}") for name in ("mixed", "mixed_beside")]
        one, other = (run.wait(60).outputs for run in runs)
    assert [one[f"t{n}"] for n in range(4)] == ["process", "thread"] * 2
    assert [other[f"b{n}"] for n in range(4)] + [other["last"]] == [*["process", "thread"] * 2, "thread"]


def test_a_timeout_still_breaks_into_a_blocking_call(fleet: Any, client: Client, crew_of: Any) -> None:
    fleet.start("--pool", "auto")
    result = client.submit(f"{crew_of(PLACES)}:blocking").wait(30)
    assert result.status == "failed"
    assert "0.5 s" in (result.error or "")


@pytest.mark.parametrize("pool", ["prefork", "shared", "threads"])
def test_a_worker_of_one_pool_serves_all(pool: str, fleet: Any, client: Client, crew_of: Any) -> None:
    fleet.start("--pool", pool, "--concurrency", "1")
    file = crew_of(PLACES)
    runs = [client.submit(f"{file}:{name}") for name in ("plainly", "awaiting")]
    assert [run.wait(60).status for run in runs] == ["completed"] * 2


@pytest.mark.parametrize("pool", ["auto", "prefork"])
def test_what_a_parent_tells_its_workers_is_not_inherited(pool: str, fleet: Any, client: Client, crew_of: Any) -> None:
    """A worker started in a task of another one finds such variables, and one in GitHub Actions some of their names."""
    fleet.start("--pool", pool, "--concurrency", "1", **dict.fromkeys(INTERNAL, "github-hosted"))
    inherited = """
        import os

        def found(ctx):
            return [name for name, value in os.environ.items() if value == "github-hosted"]

        inherited = Crew(tasks=[Task(name="t", run=found)])
    """
    assert client.submit(f"{crew_of(inherited)}:inherited").wait(60).result == "[]"


def test_a_part_that_died_is_started_again(fleet: Any, client: Client, crew_of: Any, eventually: Any) -> None:
    # Given a worker of two parts
    worker = fleet.start("--pool", "auto", "--concurrency", "1")
    assert client.submit(f"{crew_of(PLACES)}:plainly").wait(60).result == "process"

    def parts() -> dict[str, int]:
        return {one.fields["pool"]: one.fields["pid"] for one in client.store.workers.alive()}

    before = eventually(lambda: len(found := parts()) == 2 and found, why="both have registered")

    # When the one with threads is killed
    os.kill(before["shared"], 9)

    # Then another comes in its place, and does what it would have done; the other one stays
    assert client.submit(f"{crew_of(PLACES)}:awaiting").wait(60).result == "thread"
    assert parts()["prefork"] == before["prefork"]
    assert worker.alive()


def test_it_is_the_default() -> None:
    assert {option.name: option.default for option in command.params}["pool"] == "auto"
