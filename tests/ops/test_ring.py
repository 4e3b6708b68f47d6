"""A sample of the fault ring: each crew, some of its commands, some faults. ops/chaos/README.md has the whole."""

from collections.abc import Callable

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, OutOfMemoryError, ReadOnlyError
from redis.retry import Retry

from runner.testing import Command, Cut, FaultProxy, RedisServer, Refuse
from runner.testing.fault_proxy import REFUSALS

pytestmark = pytest.mark.timeout(170)


@pytest.mark.parametrize(
    "crew", [*(pytest.param(one, marks=pytest.mark.soak) for one in ("graph", "agents")), "growing"]
)
def test_a_run_survives_what_happens_to_its_commands(chaos_here: Callable[..., list[str]], crew: str) -> None:
    """tests/soak has a larger sample by the command."""
    assert " 0 wrong" in chaos_here("ring", "--crews", crew, "--sample", "5", "--seed", "11")[-1]


def test_the_proxy_refuses_in_the_servers_words(own_server: RedisServer) -> None:
    with FaultProxy(own_server) as proxy, Redis.from_url(proxy.url, client_name="me") as client:
        proxy.decide = lambda command: Refuse("READONLY") if command.name == "SET" and command.before == 1 else None
        assert client.set("a", 1)
        with pytest.raises(ReadOnlyError, match=REFUSALS["READONLY"].removeprefix("READONLY ")):
            client.set("a", 2)
        assert client.get("a") == b"1"
        assert proxy.blows == {"refuse READONLY": 1}


def test_the_proxy_refuses_a_transaction_as_the_server_does(own_server: RedisServer) -> None:
    with FaultProxy(own_server) as proxy, Redis.from_url(proxy.url) as client:
        proxy.decide = lambda command: Refuse("OOM") if command.name == "INCRBY" else None
        with client.pipeline(transaction=True) as pipe, pytest.raises(OutOfMemoryError):
            pipe.set("a", 1).incr("a").set("b", 1).execute()
        assert client.mget("a", "b") == [None, None]
        assert client.set("a", 3)


@pytest.mark.parametrize("applied", [True, False])
def test_the_proxy_cuts_before_or_after(own_server: RedisServer, applied: bool) -> None:
    with FaultProxy(own_server) as proxy, Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as client:

        def decide(command: Command) -> Cut | None:
            return Cut(applied) if command.name == "SET" and command.mentions("cut") else None

        proxy.decide = decide
        with pytest.raises(ConnectionError):
            client.set("a", "cut")
        assert client.get("a") == (b"cut" if applied else None)
