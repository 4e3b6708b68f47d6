"""Agents that wait for models share one thread of their worker, and each is as durable as in a process of its own."""

from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from runner.client import Client, prepare
from runner.tasks.app import kombu_url
from runner.testing import Call, ModelRequest, ModelServer

from ...support.soak import in_soak

pytestmark = pytest.mark.timeout(300)

AGENTS = 40

CREW = """
    from runner import Agent
    from runner.tools import tool

    @tool
    def look(n: int) -> str:
        "Looks, and blocks its thread until the test lets it go."
        while not (Path(HERE) / "go").exists():
            time.sleep(0.01)
        return f"seen {n}"

    agent = Agent(role="writer {n}", goal="write", backstory="writes", llm="openai/m", tools=[look])
    crew = Crew(agents=[agent], tasks=[Task(name="write", description="Write number {n}.", agent=agent)])
    quick = Crew(agents=[agent], tasks=[Task(name="write", description="Write number {n}.", agent=agent, timeout=4.0)])

    def block(ctx):
        return look(1)

    async def awaited(ctx):
        time.sleep(0.01)
        return threading.current_thread().name

    blocking = Crew(tasks=[Task(name="t", run=block, pool="thread")])
    awaiting = Crew(tasks=[Task(name="t", run=awaited)])
"""


@pytest.fixture
def crew(crew_of: Any, tmp_path: Path) -> str:
    return str(crew_of(f"    import threading\n    from pathlib import Path\n    HERE = {str(tmp_path)!r}\n" + CREW))


def threads_of(worker: Any, client: Client) -> int:
    """How many threads the part of the worker has that does such tasks."""
    (part,) = (one for one in client.store.workers.alive() if one.fields["pool"] == "shared")
    return len(list(Path(f"/proc/{part.fields['pid']}/task").iterdir()))


def test_agents_that_wait_have_neither_threads_nor_connections(
    fleet: Any, client: Client, crew: str, held_back: Any
) -> None:
    def answer(request: ModelRequest) -> str:
        return request.messages[-1]["content"].partition(".")[0]

    with held_back(answer) as (models, answers):
        worker = fleet.start("--pool", "shared", **models.environment)
        connected = len(client.store.client.client_list())
        before = threads_of(worker, client)
        prepared = prepare(f"{crew}:crew")
        runs = [client.submit(prepared, {"n": str(n)}) for n in range(AGENTS)]
        models.wait_for(AGENTS, 120)
        assert threads_of(worker, client) < before + 10
        assert len(client.store.client.client_list()) < connected + AGENTS // 2
        answers.set()
        results = [run.wait(120) for run in runs]
    # Each is answered what it asked, under its own name
    assert [result.result for result in results] == [f"Write number {n}" for n in range(AGENTS)]
    assert [result.ledger["by"][0]["agent"] for result in results] == [f"writer {n}" for n in range(AGENTS)]
    assert [(result.ledger["paid"], result.ledger["in_doubt"]) for result in results] == [(1, 0)] * AGENTS


def test_a_stop_ends_all_that_wait_and_each_is_in_doubt(
    fleet: Any, client: Client, crew: str, eventually: Any, held_back: Any
) -> None:
    with held_back() as (models, answers):
        # Given agents whose models do not answer within the drain timeout
        worker = fleet.start("--pool", "shared", "--drain-timeout", "0.2", **models.environment)
        prepared = prepare(f"{crew}:crew")
        runs = [client.submit(prepared, {"n": str(n)}) for n in range(AGENTS)]
        models.wait_for(AGENTS, 120)
        # When the worker is asked to end
        worker.terminate()
        assert worker.process.wait(60) == 0
        answers.set()
        # Then all are handed back, and others make the calls again
        assert [run.status for run in runs] == ["running"] * AGENTS
        fleet.start("--pool", "shared", **models.environment)
        results = [run.wait(120) for run in runs]
        assert [result.status for result in results] == ["completed"] * AGENTS
        doubt = sum(result.ledger["in_doubt"] for result in results)
        assert (doubt, models.summary()["requests"]) == (AGENTS, 2 * AGENTS)


@pytest.mark.parametrize(
    ("how", "many"), [("kill_group", 60), ("terminate", 60), *in_soak(("kill_group", 400), ("terminate", 400))]
)
def test_many_are_handed_over_and_each_call_that_was_out_is_made_once_more(
    fleet: Any, client: Client, crew: str, how: str, many: int, held_back: Any
) -> None:
    """More than one script takes back."""
    with held_back() as (models, answers):
        worker = fleet.start("--pool", "shared", "--drain-timeout", "0", **models.environment)
        prepared = prepare(f"{crew}:crew")
        runs = [client.submit(prepared, {"n": str(n)}) for n in range(many)]
        models.wait_for(many, 240)
        # When the worker that has all of them in flight ends, and another stands by
        fleet.start("--pool", "shared", **models.environment)
        getattr(worker, how)()
        models.wait_for(2 * many, 240)
        answers.set()
        results = [run.wait(240) for run in runs]
        requests = models.summary()["requests"]
    # Then nothing is lost, and nothing is done more often than the account says
    assert [result.status for result in results] == ["completed"] * many
    ledgers = [result.ledger for result in results]
    paid, doubt = (sum(ledger[name] for ledger in ledgers) for name in ("paid", "in_doubt"))
    assert (paid, doubt, requests) == (many, many, 2 * many)
    # And who was asked to end has died of no task
    ended = {event.type for run in runs for event in run.events()} & {"task_recovered", "task_released"}
    assert ended == {"task_recovered" if how == "kill_group" else "task_released"}


def test_a_timeout_and_a_cancellation_reach_a_task_that_waits(
    fleet: Any, client: Client, crew: str, eventually: Any, held_back: Any
) -> None:
    with held_back() as (models, answers):
        worker = fleet.start("--pool", "shared", **models.environment)
        prepared = prepare(f"{crew}:crew")
        stays, goes = (client.submit(prepared, {"n": n}) for n in ("stays", "goes"))
        late = client.submit(f"{crew}:quick", {"n": "late"})
        models.wait_for(3, 60)
        assert late.wait(60).error == "task 'write': it ran longer than its timeout of 4 s"
        goes.cancel()
        me = worker.about()["id"]
        eventually(lambda: len(client.store.workers.beat(me, 5000).claims) == 1, why="its worker has let go of it")
        assert goes.wait(60).status == "cancelled"
        answers.set()
        assert stays.wait(60).status == "completed"
    assert worker.alive()


def test_a_job_that_is_revoked_alone_is_handed_back(
    fleet: Any, client: Client, crew: str, eventually: Any, held_back: Any
) -> None:
    with held_back() as (models, answers):
        fleet.start("--pool", "shared", "--drain-timeout", "0.1", **models.environment)
        app, prepared = Celery(broker=kombu_url(fleet.url)), prepare(f"{crew}:crew")
        eventually(lambda: app.control.ping(), why="the worker hears")
        stays, goes = (client.submit(prepared, {"n": n}) for n in ("stays", "goes"))
        models.wait_for(2, 60)
        app.control.revoke(f"{goes.id}.main.write.1", terminate=True)
        models.wait_for(3, 60)  # it is at its call again
        answers.set()
        results = [run.wait(60) for run in (stays, goes)]
    assert [(result.status, result.ledger["in_doubt"]) for result in results] == [("completed", 0), ("completed", 1)]
    assert "task_released" in {event.type for event in goes.events()}


def test_a_job_that_is_revoked_before_it_begins_is_done(fleet: Any, client: Client, crew: str, eventually: Any) -> None:
    with ModelServer("Done.") as models:
        fleet.start("--pool", "shared", **models.environment)
        app = Celery(broker=kombu_url(fleet.url))
        message = "r-before.main.write.1"
        eventually(lambda: app.control.revoke(message, reply=True), why="the worker heard it")
        assert [*(app.control.inspect().revoked() or {}).values()] == [[message]]
        handle = client.submit(f"{crew}:crew", {"n": "1"}, new_id=lambda: "r-before")
        assert handle.wait(60).status == "completed"


def test_what_blocks_holds_no_other_up(fleet: Any, client: Client, crew: str, tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> Any:
        if "blocks" in str(request.messages) and request.turn == 0:
            return [Call("look", {"n": 1}), Call("look", {"n": 2})]
        return "Done."

    with ModelServer(answer) as models:
        fleet.start("--pool", "shared", **models.environment)
        held = [client.submit(f"{crew}:crew", {"n": "blocks"}), client.submit(f"{crew}:blocking")]
        models.wait_for(1, 60)
        assert client.submit(f"{crew}:crew", {"n": "1"}).wait(60).status == "completed"
        assert client.submit(f"{crew}:awaiting").wait(60).result == "tasks"
        assert [run.status for run in held] == ["running"] * 2
        (tmp_path / "go").touch()
        assert [run.wait(60).status for run in held] == ["completed"] * 2


STOPS = """
    import asyncio

    async def stops(ctx):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "went on"

    crew = Crew(tasks=[Task(name="t", run=stops)])
"""


def test_a_task_that_stops_the_loop_stops_no_task(fleet: Any, client: Client, crew_of: Any) -> None:
    fleet.start("--pool", "shared")
    crew = crew_of(STOPS)
    assert [client.submit(crew).wait(60).result for _ in range(2)] == ["went on"] * 2
