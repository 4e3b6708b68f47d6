"""Several servers: what commands find on them, and how they say which one is away."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runner.client import Client, prepare
from runner.client.partitions import PartitionedClient
from runner.testing import RedisServer

KEEPS = ("--appendfsync", "always")  #: a server that is killed has all that it acknowledged

CREW = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="write", run=lambda ctx: "done")])
"""


def test_commands_find_runs_on_all_servers_and_say_which_is_away(cli: Any, write_crew: Callable[..., Path]) -> None:
    with RedisServer(arguments=KEEPS) as a, RedisServer(arguments=KEEPS) as b, RedisServer(arguments=KEEPS) as c:
        servers = [a, b, c]
        urls = ",".join(server.url for server in servers)

        def told(*command: str) -> Any:
            return cli(*command, RUNNER_REDIS_URL=urls)

        crew = prepare(str(write_crew(CREW)))
        with Client(urls) as client:
            assert isinstance(client, PartitionedClient)
            ids = [client.at(place).submit(crew, new_id=lambda at=place: client.new_id(at)).id for place in range(3)]
        assert {run["run_id"] for run in json.loads(told("runs", "--json").out)} == set(ids)
        assert told("cancel", ids[2]).code == 0
        assert json.loads(told("show", ids[2], "--json").out)["status"] == "cancelled"
        b.kill()
        said = told("runs", "--json")
        assert ({run["run_id"] for run in json.loads(said.out)}, said.code) == ({ids[0], ids[2]}, 4)
        assert b.url in said.err
        said = told("show", ids[1])
        assert (said.code, b.url in said.err) == (4, True)
        found = json.loads(told("doctor", "--json").out)
        assert {one["what"]: one["ok"] for one in found if one["what"].startswith("Redis,")} == {
            "Redis, 1 of 3": True, "Redis, 2 of 3": False, "Redis, 3 of 3": True,
        }  # fmt: skip
        assert cli("runs", RUNNER_REDIS_URL=a.url).code == 2
