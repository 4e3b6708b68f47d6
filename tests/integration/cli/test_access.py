"""What a person is told whose user may not do what a command needs."""

import re
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.core.errors import StoreUnreachable
from runner.testing import RedisServer

CREW = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""
REFUSED = (
    r"^Redis is unavailable: it refuses everything, because its access list forbids what this user needs "
    r"\(NOPERM .+\)\. Allow this user what docs/operations\.md lists"
)


def test_a_client_is_told_at_once_what_its_user_may_not_do(own_server: RedisServer, write_crew: Any) -> None:
    with Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "person", "on", ">pw", "~*", "&*", "+@all")
        with Client(own_server.url.replace("unix://", "unix://person:pw@")) as client:
            handle = client.submit(write_crew(CREW))
            admin.execute_command("ACL", "SETUSER", "person", "-@all")
            for call in (lambda: client.submit(write_crew(CREW, "other")), lambda: handle.status):
                with pytest.raises(StoreUnreachable, match=REFUSED):
                    call()
            admin.execute_command("ACL", "SETUSER", "person", "+@all")
            assert handle.status == "running"
            admin.execute_command("ACL", "SETUSER", "person", "resetpass", ">new")
            admin.client_kill_filter(user="person")
            with pytest.raises(StoreUnreachable, match=r"it knows no such user, or another password \(WRONGPASS "):
                assert handle.status == "running"


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        (
            "~runner:{p0} ~runner:p* ~runner:t* ~runner:{p0}:run:* ~runner:{p0}:bundle:*",
            r"'\w+' command on all keys runner:\{p0\}:\*",
        ),
        ("~runner:{p0} ~runner:{p0}:*", r"'lpush' command on all keys runner:p\d:runner"),
    ],
)
def test_a_client_is_told_which_keys_are_missing(
    own_server: RedisServer, write_crew: Any, keys: str, missing: str
) -> None:
    with Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "person", "on", ">pw", "&*", "+@all", "%R~*", *keys.split())
        with Client(own_server.url.replace("unix://", "unix://person:pw@")) as client:
            with pytest.raises(StoreUnreachable, match=REFUSED) as told:
                client.submit(write_crew(CREW))
            assert re.search(missing, str(told.value)), told.value
            assert not admin.keys("runner:*:run:*")
            admin.execute_command("ACL", "SETUSER", "person", "~runner:*")
            assert client.submit(write_crew(CREW)).status == "running"
