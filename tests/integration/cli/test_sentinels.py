"""Sentinels that give no master: a line says where they are, which master was asked for, why none, and what to do."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client.embedded import find_binary

GOOD = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""


@dataclass
class Watched:
    """A master that wants a password, and one sentinel that wants another."""

    master: "subprocess.Popen[bytes]"
    port: int
    sentinel: int

    @property
    def url(self) -> str:
        return f"redis+sentinel://:hidden-w0rd@127.0.0.1:{self.sentinel}/store/0?sentinel_password=hidden-watch"

    def state(self) -> dict[str, Any]:
        """Of the master, as the sentinel sees it; empty while that does not answer."""
        with suppress(Exception), Redis(port=self.sentinel, password="hidden-watch", decode_responses=True) as one:
            return dict(one.sentinel_master("store"))
        return {}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def watched(tmp_path: Path, eventually: Any) -> Iterator[Watched]:
    port, sentinel = free_port(), free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {sentinel}\nrequirepass hidden-watch\nsentinel monitor store 127.0.0.1 {port} 1\n"
        "sentinel auth-pass store hidden-w0rd\nsentinel down-after-milliseconds store 300\n"
    )
    master = [find_binary(), "--port", str(port), "--requirepass", "hidden-w0rd", "--save", "", "--dir", tmp_path]
    started = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for command in (master, [find_binary(), config, "--sentinel", "--dir", tmp_path])
    ]
    one = Watched(started[0], port, sentinel)
    eventually(lambda: one.state().get("flags") == "master", why="the sentinel sees the master")
    yield one
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def told(cli, write_crew):
    """Runs each verb on a URL. Gives what they say, which is the same, but for the URL."""
    crew = write_crew(GOOD)

    def run(url: str) -> str:
        lines = set()
        for verb in ("submit", "worker", "doctor"):
            said = cli(verb, *([crew] if verb == "submit" else []), RUNNER_REDIS_URL=url)
            assert said.code == 4, said
            assert "Traceback" not in said.err
            line = said.error if verb != "doctor" else said.out.splitlines()[-1].removeprefix("!!  Redis: ")
            lines.add(line)
        (line,) = lines
        assert "hidden" not in line
        named, _, rest = line.removeprefix("Redis at redis+sentinel://").removeprefix(":***@").partition(" ")
        assert named.startswith(url.rpartition("/")[0].rpartition("//")[2].rpartition("@")[2]), line
        return rest

    return run


def test_the_right_url_is_served(watched, cli):
    assert cli("runs", "--json", RUNNER_REDIS_URL=watched.url).out == "[]\n"


def test_a_name_that_no_master_has(watched, told):
    assert told(watched.url.replace("/store/", "/stor/")) == (
        "cannot be reached: its sentinels know no master 'stor', but 'store'. Correct the name in the URL."
    )


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("?sentinel_password=hidden-wrong", "invalid username-password pair or user is disabled"),
        ("", "it requires a pass"),
    ],
)
def test_a_password_that_the_sentinels_do_not_take(query, why, watched, told):
    line = told(watched.url.partition("?")[0] + query)
    assert line.startswith(
        f"cannot be reached: its sentinels refuse to authenticate (127.0.0.1:{watched.sentinel}: {why}"
    ), line
    assert line.endswith("). Check sentinel_username and sentinel_password.")


@pytest.mark.parametrize(
    ("login", "why"), [(":hidden-wrong@", "invalid username-password"), ("", "it requires a password")]
)
def test_a_password_that_the_master_does_not_take(login, why, watched, told):
    line = told(watched.url.replace(":hidden-w0rd@", login))
    assert line.startswith(f"refuses to authenticate: {why}"), line
    assert line.endswith("Check user and password in the URL, which are those of the master 'store' and its replicas.")


def test_no_sentinel_answers(told):
    ports = free_port(), free_port()
    line = told(f"redis+sentinel://:hidden-w0rd@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/store/0")
    assert line.startswith("cannot be reached: none of its sentinels answers (127.0.0.1:"), line
    assert line.endswith("Connection refused). Start them, or name others with --redis-url.")


def test_a_master_that_is_down_and_no_other_elected(watched, told, eventually):
    watched.master.kill()
    watched.master.wait()

    def is_down() -> bool:
        """For good: its connection is closed, and a ping was never answered. Before that ping it is up once more."""
        state = watched.state()
        flags = state.get("flags", "").split(",")
        return {"s_down", "disconnected"} <= {*flags} and state["last-ping-sent"] > 300

    eventually(is_down, why="the sentinel sees that it is down")
    assert told(watched.url) == (
        f"cannot be reached: the master 'store' at 127.0.0.1:{watched.port} is down, and its sentinels have elected no "
        "other. Start it, or try again when they have."
    )


@pytest.mark.parametrize("verb", ["submit", "worker", "supervisor"])
def test_a_broker_behind_sentinels(verb, watched, cli, write_crew, server):
    arguments = [write_crew(GOOD)] if verb == "submit" else []
    url = watched.url.replace("/store/", "/stor/")
    said = cli(verb, *arguments, RUNNER_REDIS_URL=server.url, RUNNER_BROKER_URL=url)
    assert said.code == 4
    assert said.error.startswith(f"the broker at redis+sentinel://:***@127.0.0.1:{watched.sentinel}/stor/0")
    assert said.error.endswith("its sentinels know no master 'stor', but 'store'. Correct the name in the URL.")
    assert "hidden" not in said.error
