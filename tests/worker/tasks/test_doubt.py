"""What was done twice is what is in doubt, also where the store refuses and processes die meanwhile.

The account is a file that steps write to, and the count of a server of models.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.providers.redis.claimed_steps import AWAY
from runner.testing import Fleet, ModelServer, RedisServer

pytestmark = pytest.mark.timeout(120)

REFUSE = """
    import redis
    def refuse(ctx):
        # The store refuses from here on, a moment after it was heard.
        if ctx.attempt == 1:
            admin.execute_command(*{refuse!r}.split())
    admin = redis.Redis.from_url({url!r})
"""
STEPS = """
    def run(ctx):
        admin.ping()
        ctx.step("first", trace, "step first")
        refuse(ctx)
        ctx.step("late", trace, "step late")
        return "done"

    crew = Crew(tasks=[Task(name="t", run=run)])
"""
CALLS = """
    import time

    def ask(text):
        import openai
        with openai.OpenAI(base_url={models!r}, api_key="k", max_retries=0, timeout=60) as client:
            said = client.chat.completions.create(model="m", messages=[{{"role": "user", "content": text}}])
            return said.choices[0].message.content

    def run(ctx):
        admin.ping()
        ask("first")
        refuse(ctx)
        time.sleep({silence})  # at least so long the store was not heard
        return ask("late")

    crew = Crew(tasks=[Task(name="t", run=run)])
"""


@pytest.fixture
def killed(own_fleet: Fleet, own_server: RedisServer, eventually: Any) -> Callable[[str], None]:
    """Kills the pool's child as soon as it waits for the store, which takes writes again after that."""

    def kill(again: str) -> None:
        worker = own_fleet.workers[-1]
        eventually(lambda: "waiting for the store: it refuses" in own_fleet.log(), why="the task waits for the store")
        for child in worker.children():
            os.kill(child, signal.SIGKILL)
        with Redis.from_url(own_server.url) as admin:
            admin.execute_command(*again.split())

    return kill


READONLY = ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")
NOREPLICAS = ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0")


@pytest.mark.parametrize(("refuse", "again"), [READONLY, NOREPLICAS], ids=["READONLY", "NOREPLICAS"])
def test_a_step_that_begins_as_the_store_refuses_is_counted(
    refuse: str, again: str, own_fleet: Fleet, own_server: RedisServer, own_client: Client, crew_of: Any, trace: Any,
    killed: Any,
) -> None:  # fmt: skip
    own_fleet.start("--concurrency", "1")
    handle = own_client.submit(crew_of(REFUSE.format(refuse=refuse, url=own_server.url) + STEPS))
    killed(again)
    result = handle.wait(60)
    assert result.status == "completed", result
    assert trace.steps()["step first"] == 1
    assert result.ledger["in_doubt"] == trace.repeated()


@pytest.mark.parametrize(("refuse", "again"), [READONLY, NOREPLICAS], ids=["READONLY", "NOREPLICAS"])
def test_so_it_is_where_the_worker_is_asked_to_end_meanwhile(
    refuse: str, again: str, own_fleet: Fleet, own_server: RedisServer, own_client: Client, crew_of: Any, trace: Any,
    eventually: Any,
) -> None:  # fmt: skip
    worker = own_fleet.start("--concurrency", "1", "--drain-timeout", "0")
    handle = own_client.submit(crew_of(REFUSE.format(refuse=refuse, url=own_server.url) + STEPS))
    eventually(lambda: "waiting for the store: it refuses" in own_fleet.log(), why="the task waits for the store")
    worker.terminate()
    eventually(lambda: not worker.alive(), why="it ends, though the store refuses")
    with Redis.from_url(own_server.url) as admin:
        admin.execute_command(*again.split())
    own_fleet.start("--concurrency", "1")
    result = handle.wait(60)
    assert result.status == "completed", result
    assert result.ledger["in_doubt"] == trace.repeated()


@pytest.mark.parametrize("silence", [0.0, 2 * AWAY])
def test_a_call_leaves_when_the_store_knows_of_it_or_was_heard_a_moment_ago(
    own_fleet: Fleet, own_server: RedisServer, own_client: Client, crew_of: Any, killed: Any, silence: float
) -> None:
    refuse, again = READONLY
    with ModelServer(lambda request: f"<{request.text}>") as models:
        own_fleet.start("--concurrency", "1")
        crew = REFUSE.format(refuse=refuse, url=own_server.url) + CALLS.format(models=models.url, silence=silence)
        handle = own_client.submit(crew_of(crew))
        killed(again)
        result = handle.wait(60)
        assert result.outputs == {"t": "<late>"}
        doubt = result.ledger["in_doubt"]
        assert (models.paid, result.ledger["paid"]) == (2 + doubt, 2)
        assert doubt == 0 or not silence


KICKOFF = """
    import os, signal

    def run(ctx):
        def broken_off():
            trace("step second")
            if ctx.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        first = Task(name="first", run=lambda inner: inner.step("first", trace, "step first"))
        second = Task(name="second", run=lambda inner: inner.step("second", broken_off))
        Crew(tasks=[first, second]).kickoff()

    crew = Crew(tasks=[Task(name="t", run=run)])
"""


def test_the_steps_of_a_kickoff_inside_a_task_are_counted_and_its_tasks_are_not(
    fleet: Fleet, client: Client, crew_of: Any, trace: Any
) -> None:
    fleet.start("--concurrency", "1")
    result = client.submit(crew_of(KICKOFF)).wait(60)
    assert (result.status, trace.lines()) == ("completed", ["step first", "step second", "step second"]), result
    assert (result.ledger["paid"], result.ledger["in_doubt"]) == (2, 1)
