"""A store that refuses for a while as a command begins, or in its midst: the command waits, says so, and goes on."""

import logging
import re
from collections.abc import Callable, Iterator

import pytest

from runner.client import Client
from runner.providers.redis import waiting_client
from runner.providers.redis.outages import FORBIDDEN
from runner.testing import Command, FaultProxy, Refuse
from runner.testing.fault_proxy import ANSWERED, REFUSALS

from .conftest import Said

GOOD = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""
VERBS = ["submit", "show", "wait", "doctor"]


@pytest.fixture
def proxy(own_server) -> Iterator[FaultProxy]:
    with FaultProxy(own_server) as one:
        yield one


@pytest.fixture
def ask(cli, write_crew, own_server, proxy) -> Callable[[str], Said]:
    """Runs a verb through the proxy, on a run that is there, and has ended but for `cancel`."""
    crew = write_crew(GOOD)
    with Client(own_server.url) as client:
        run = client.submit(crew)
        client.run(run.id).cancel()
        live = client.submit(crew)

    def run_verb(verb: str) -> Said:
        of = {"submit": [crew, "--detach"], "show": [run.id], "wait": [run.id], "cancel": [live.id]}
        return cli(verb, *of.get(verb, []), RUNNER_REDIS_URL=proxy.url)

    return run_verb


class From:
    """From its ``nth`` command on that it may refuse, a server refuses for so long."""

    def __init__(self, nth: int, code: str, seconds: float) -> None:
        self.left, self.code, self.seconds = nth, code, seconds

    def __call__(self, command: Command) -> Refuse | None:
        if command.name in ANSWERED[self.code]:
            return None
        self.left -= 1
        return Refuse(self.code, self.seconds) if self.left == 0 else None


def fine(verb: str, said: Said) -> bool:
    return said.code == {"doctor": 1, "wait": 3}.get(verb, 0) and "Redis" not in said.err


@pytest.mark.parametrize("code", sorted(REFUSALS.keys() - FORBIDDEN))
@pytest.mark.parametrize("verb", VERBS)
def test_a_command_waits_for_a_store_that_refuses_at_first(verb, code, ask, proxy, caplog):
    caplog.set_level(logging.WARNING)

    def decide(command: Command) -> Refuse | None:
        waits = any(line.startswith("waiting for the store") for line in caplog.messages)
        return None if waits or command.name in ANSWERED[code] else Refuse(code)

    proxy.decide = decide
    said = ask(verb)
    assert fine(verb, said), said
    begins, ends = [line for line in caplog.messages if "store" in line]
    assert begins.startswith("waiting for the store: it refuses "), begins
    assert ends.startswith("the store is back after "), ends


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("NOPERM", r"is unavailable: it refuses everything, because its access list forbids .* \(ACL SETUSER\)\."),
        ("NOAUTH", r"refuses to authenticate: it requires a password\. Check user and password in the URL\."),
    ],
)
@pytest.mark.parametrize("verb", VERBS)
def test_a_command_that_is_not_let_in_says_so_at_once(verb, code, says, ask, proxy):
    """An operator has to change something, so it does not wait."""
    proxy.decide = lambda command: None if command.name in ANSWERED[code] else Refuse(code)
    said = ask(verb)
    assert said.code == 4, said
    assert re.search(says, said.out + said.err), said
    assert "Traceback" not in said.err


@pytest.mark.parametrize("code", ["BUSY", "LOADING"])
@pytest.mark.parametrize("verb", ["submit", "cancel", "doctor"])
def test_a_command_waits_wherever_it_is_refused(verb, code, ask, proxy):
    """At each of its commands in turn; a `cancel` that was done is not done again."""
    nth, reached = 1, True
    while reached and nth < 40:
        proxy.decide = refusing = From(nth, code, 0.05)
        said = ask(verb)
        reached = refusing.left <= 0
        assert fine(verb, said) or (verb == "cancel" and "is cancelled: there is nothing" in said.err), (nth, said)
        nth += 1
    assert nth > 3


@pytest.mark.parametrize("verb", ["submit", "show", "doctor"])
@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "BUSY",
            "refuses everything, because a script keeps it busy (BUSY Redis is busy running a script.",
        ),
        ("LOADING", "refuses everything, because it is loading its data"),
        ("OOM", "refuses writes, because its memory is full (OOM command not allowed when used memory > 'maxmemory'.)"),
        ("MASTERDOWN", "refuses everything, because its master is down (MASTERDOWN "),
    ],
)
def test_what_is_refused_for_long_is_said_with_what_to_do(verb, code, says, ask, proxy, monkeypatch):
    monkeypatch.setattr(waiting_client, "PATIENCE", 0.2)
    remedy = {
        "BUSY": "SCRIPT KILL",
        "LOADING": "its log",
        "OOM": "Raise its maxmemory",
        "MASTERDOWN": "Start the master.",
    }
    for nth in (1, 3):
        proxy.decide = From(nth, code, 3600.0)
        said = ask(verb)
        proxy.refuse(code, 0.0)
        assert said.code in ((1, 4) if verb == "doctor" else (4,)), said
        assert says in said.out + said.err
        assert remedy[code] in said.out + said.err
        assert "Traceback" not in said.err
        if verb != "doctor":
            assert "is unavailable: it " in said.error


def test_doctor_tells_what_is_refused_when_the_server_says_who_it_is(cli, own_server, monkeypatch):
    """PING and INFO are answered, and nothing else."""
    monkeypatch.setattr(waiting_client, "PATIENCE", 0.2)
    known = {"PING", "INFO", *ANSWERED["BUSY"], "CLIENT", "SELECT"}
    with FaultProxy(own_server, lambda command: None if command.name in known else Refuse("MASTERDOWN")) as proxy:
        said = cli("doctor", RUNNER_REDIS_URL=proxy.url)
    assert said.code == 1
    assert (
        "!!  writes: every task waits for it: it refuses everything, because its master is down (MASTERDOWN" in said.out
    )
    assert (
        "    Start the master. Name the master, or promote this one (REPLICAOF NO ONE). Runs resume by them" in said.out
    )
    assert "!!  Redis gives no more detail: it refuses everything, because its master is down" in said.out
    assert "ok  append-only file: on" in said.out
    assert said.err == ""
