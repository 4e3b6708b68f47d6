"""An operator takes a right, or the password, from the workers' user: they wait until it is given back."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.testing import Fleet, ModelServer, RedisServer

CREW = """
    from runner import Agent

    digger = Agent(role="digger", goal="dig", backstory="digs", llm="openai/gpt-4o-mini", tools=[])
    crew = Crew(process=Process.graph, tasks=[
        Task(name=f"t{n}", description=f"dig {n}", expected_output="a thing", agent=digger) for n in range(3)])
"""
ALLOWED = ("reset", "on", ">pw", "~*", "&*", "+@all")
TAKEN = {
    "right": ("-@all",),
    "writes": ("-@write",),
    "one of the commands of a commit": ("-rpush",),
    "keys, but to read them": ("resetkeys", "%R~*"),
    "all keys but those of runs": ("resetkeys", "~runner:{p0}:run:*", "%R~*"),
    "all queues": ("resetkeys", "~runner:{p0}*", "%R~*"),
    "password": ("resetpass", ">other"),
    "user": ("off",),
}


@pytest.fixture
def admin(own_server: RedisServer) -> Iterator[Redis]:
    with Redis.from_url(own_server.url, decode_responses=True) as one:
        one.execute_command("ACL", "SETUSER", "worker", *ALLOWED)
        yield one


@pytest.mark.parametrize("taken", TAKEN)
def test_no_call_is_paid_again_where_a_right_is_taken_for_a_while(
    taken: str, admin: Redis, own_server: RedisServer, crew_of: Any, eventually: Any
) -> None:
    # Given a worker with a user of its own, and agents whose calls are out
    with (
        ModelServer(lambda _: "it is there", delay=1.0) as models,
        Fleet(own_server.url.replace("unix://", "unix://worker:pw@")) as fleet,
        Client(own_server.url) as client,
    ):
        fleet.settings = dict(models.environment)
        worker = fleet.start("--concurrency", "3", "--lease", "1")
        handle = client.submit(crew_of(CREW))
        eventually(lambda: len(models.log) == 3, why="all three are asked")
        main = worker.main_pid()
        # When that user may not do what it needs, for longer than a lease
        admin.execute_command("ACL", "SETUSER", "worker", *TAKEN[taken])
        admin.client_kill_filter(user="worker")
        eventually(lambda: "waiting for the store: it " in fleet.log(), why="somebody waits, and says so")
        time.sleep(1.5)
        admin.execute_command("ACL", "SETUSER", "worker", *ALLOWED)
        # Then all calls are paid once, in the same worker
        result = handle.wait(60)
        assert result.status == "completed", result
        paid, in_doubt = result.ledger["paid"], result.ledger["in_doubt"]
        assert (len(models.log), paid, in_doubt, worker.main_pid()) == (3, 3, 0, main), fleet.log()
        assert "Traceback" not in fleet.log()
        assert "starting another" not in fleet.log()
