"""`runner flower` as a command: how it is bound, how it ends, and what it does while Redis is away."""

import logging
import signal
import socket
import sys
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from runner.tasks.flower import _named, _OneLine
from runner.testing import Command, FaultProxy, Fleet, Refuse
from runner.testing.fault_proxy import ANSWERED


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "127.example.com"])
def test_beyond_loopback_it_wants_a_password(processes, address: str) -> None:
    part = processes.runner("open", "flower", "--port", "0", "--address", address)
    assert part.ended() == 2
    assert part.printed().startswith("error: Flower on ")
    assert "RUNNER_FLOWER_AUTH" in part.printed()
    assert part.printed().count("\n") == 1


def test_a_password_must_be_one(processes) -> None:
    for auth in ("me", "me:", ":password", "me:größe"):
        part = processes.runner("auth", "flower", "--port", "0", RUNNER_FLOWER_AUTH=auth)
        assert part.ended() == 2
        assert part.printed() == "error: --basic-auth or RUNNER_FLOWER_AUTH must be USER:PASSWORD, in ASCII\n"


def test_a_taken_port_is_said_in_one_line(processes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        part = processes.runner("taken", "flower", "--port", str(port))
        assert part.ended() == 2
    assert part.printed() == f"error: Flower cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_clean(processes, signum: signal.Signals) -> None:
    """At once after its start: it is then asking workers that are not there."""
    flower = processes.flower()
    flower.process.send_signal(signum)
    assert flower.ended() == 0
    assert flower.printed() == f"Flower at {flower.url}\n"


def test_it_starts_while_the_store_refuses(own_server) -> None:
    asked = []

    def decide(command: Command) -> Refuse | None:
        first = not asked and command.name not in ANSWERED["BUSY"]
        asked.extend([command] * first)
        return Refuse("BUSY", 1.0) if first else None

    with (
        FaultProxy(own_server, decide) as proxy,
        Fleet(proxy.url) as fleet,
        fleet.popen("flower", "--port", "0") as flower,
    ):
        begins, ends, up = (flower.stderr.readline() for _ in range(3))
        flower.terminate()
        assert flower.wait(30) == 0
    assert begins.startswith("waiting for the store: it refuses everything, because a script keeps it busy (BUSY "), (
        begins
    )
    assert ends.startswith("the store is back after "), ends
    assert up.startswith("Flower at "), up


def test_on_loopback_without_a_password_it_shows_and_does_nothing(processes) -> None:
    flower = processes.flower()
    assert flower.get("/tasks", auth=None)[0] == 200
    assert flower.get("/api/tasks", auth=None)[0] == 401


def test_a_job_that_was_received_before_flower_came_is_named_by_its_id() -> None:
    job = SimpleNamespace(name=None, uuid="r-1.main.write.1")
    assert _named(job).name == "r-1.main.write.1"


@pytest.mark.parametrize(
    ("error", "away"),
    [(RedisConnectionError("refused"), True), (ConnectionRefusedError("refused"), True), (TypeError("a"), False)],
)
def test_a_broker_that_is_away_is_told_in_one_line(error: Exception, away: bool) -> None:
    """Kombu tells it with a traceback, where it had been connected and may not be again."""
    try:
        raise error
    except Exception:
        record = logging.LogRecord("kombu", logging.WARNING, "", 1, "again in %s s: %r", (2, error), sys.exc_info())
    assert ("\n" not in _OneLine().format(record)) is away
    assert record.exc_info  # other handlers still have it


def test_it_ends_while_redis_is_frozen(processes) -> None:
    """Its threads wait for answers then, and nobody is to wait for them."""
    flower = processes.flower()
    redis = processes.started[0]
    redis.send_signal(signal.SIGSTOP)
    try:
        assert flower.get("/workers?refresh=1", auth=None)[0] == 200  # asks all workers, in the background
        flower.process.terminate()
        assert flower.ended() == 0
    finally:
        redis.send_signal(signal.SIGCONT)
    assert "Traceback" not in flower.printed()


def test_while_redis_is_away_pages_answer_and_it_ends(processes_of_one_test) -> None:
    flower = processes_of_one_test.flower()
    redis = processes_of_one_test.started[0]
    redis.kill()
    redis.wait()
    for page in ("/workers", "/tasks", "/broker"):
        status, text = flower.get(page, auth=None)
        assert status == 200, text
    flower.says("Unable to get queues")
    flower.says("Broker connection error|Failed to capture events")  # kombu's words, or Flower's
    flower.process.terminate()
    assert flower.ended() == 0
    assert "Traceback" not in flower.printed()
