"""Exit code 4, with the address that was tried, when Redis cannot be reached or does not let us in."""

import contextlib
import os
import socket
import subprocess
import threading

import pytest
from redis import Redis

from runner.client.embedded import find_binary
from runner.providers.redis import waiting_client
from runner.testing import FaultProxy, Refuse

GOOD = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="a", run=lambda ctx: "hello")])
"""
VERBS = ["submit", "runs", "worker", "supervisor", "flower", "show r-1", "wait r-1", "events r-1", "cancel r-1"]


@pytest.fixture
def refusing_port():
    """A port at which nobody listens, and nobody will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def unreachable(cli, write_crew):
    """Runs a verb on a Redis that is not there. Gives the one line."""
    crew = write_crew(GOOD)

    def run(verb: str, url: str) -> str:
        verb, *rest = verb.split()
        said = cli(verb, *([crew] if verb == "submit" else rest), RUNNER_REDIS_URL=url)
        assert said.code == 4, said
        return said.error

    return run


@pytest.mark.parametrize("verb", VERBS)
def test_nobody_listens(verb, unreachable, refusing_port):
    line = unreachable(verb, f"redis://127.0.0.1:{refusing_port}/0")
    assert line.startswith(f"Redis at redis://127.0.0.1:{refusing_port}/0 cannot be reached: ")
    assert "Connection refused" in line
    assert line.endswith("Start it, or name another with --redis-url.")


@pytest.fixture
def port_that_says():
    """A port at which each connection is answered with that, whatever it sends, and ended."""
    with contextlib.ExitStack() as open_ones:

        def port(text: bytes) -> int:
            listening = open_ones.enter_context(socket.create_server(("127.0.0.1", 0)))
            threading.Thread(target=_answer, args=(listening, text), daemon=True).start()
            return listening.getsockname()[1]

        yield port


def _answer(listening: socket.socket, text: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listening.accept()
            with client:
                client.recv(4096)
                client.sendall(text)


def test_what_is_wrong_with_tls_is_said(unreachable, port_that_says, refusing_port, tmp_path):
    plain, encrypted = port_that_says(b"-ERR unknown command\r\n"), port_that_says(b"")
    line = unreachable("runs", f"rediss://127.0.0.1:{plain}/0")
    assert line.endswith(". If it has no TLS, write redis://."), line
    line = unreachable("runs", f"rediss://127.0.0.1:{plain}/0?ssl_ca_certs={tmp_path}/none.pem")
    assert line.endswith(". The file of ssl_ca_certs cannot be read here."), line
    line = unreachable("runs", f"redis://127.0.0.1:{encrypted}/0")
    assert line.endswith("Start it, or name another with --redis-url. If it wants TLS, write rediss://."), line
    # What has nothing to do with it is said as ever
    line = unreachable("runs", f"rediss://127.0.0.1:{refusing_port}/0")
    assert line.endswith("Connection refused. Start it, or name another with --redis-url."), line


@pytest.mark.parametrize("verb", ["doctor", "runs", "submit", "show r-1"])
@pytest.mark.parametrize(
    ("code", "why"),
    [("MISCONF", "writes, because it cannot save to its disk"), ("BUSY", "everything, because a script keeps")],
)
def test_a_server_that_refuses_whatever_it_is_asked(verb, code, why, cli, write_crew, own_server, monkeypatch):
    monkeypatch.setattr(waiting_client, "PATIENCE", 0.2)
    verb, *rest = verb.split()
    with FaultProxy(own_server, lambda _: Refuse(code)) as proxy:
        said = cli(verb, *([write_crew(GOOD)] if verb == "submit" else rest), RUNNER_REDIS_URL=proxy.url)
    assert said.code == 4
    assert f"is unavailable: it refuses {why}" in said.out + said.err
    assert "cannot be reached" not in said.out + said.err
    assert "Traceback" not in said.out + said.err


@pytest.mark.parametrize("verb", ["runs", "doctor"])
def test_refusals_that_pass_soon_are_waited_for(verb, cli, own_server):
    left = [3]

    def decide(command):
        left[0] -= command.name == "PING"
        return Refuse("MISCONF") if command.name == "PING" and left[0] >= 0 else None

    with FaultProxy(own_server, decide) as proxy:
        said = cli(verb, RUNNER_REDIS_URL=proxy.url)
    assert "Redis at" not in said.out + said.err
    assert left[0] < 0


def test_submit_stores_nothing_where_writes_are_refused_for_long(cli, write_crew, own_server, monkeypatch):
    monkeypatch.setattr(waiting_client, "PATIENCE", 0.2)
    with Redis.from_url(own_server.url) as admin:
        admin.config_set("maxmemory", 1)
        said = cli("submit", write_crew(GOOD), "--detach", RUNNER_REDIS_URL=own_server.url)
        assert (said.code, admin.keys()) == (4, [])
        assert "it refuses writes, because its memory is full" in said.error


def test_doctor_says_what_redis_lacks(cli, own_server):
    with Redis.from_url(own_server.url) as admin:
        admin.config_set("appendonly", "no")
        admin.config_set("maxmemory-policy", "allkeys-lru")
    said = cli("doctor", RUNNER_REDIS_URL=own_server.url)
    assert said.code == 1
    assert "start Redis with --appendonly yes" in said.out
    assert "set maxmemory-policy noeviction" in said.out


@pytest.mark.parametrize("rights", ["+@all", "-client|list"])
def test_doctor_lists_a_supervisor_without_a_worker(rights, cli, start, own_server, eventually):
    with Redis.from_url(own_server.url) as admin:
        alone = start("supervisor", "--redis-url", own_server.url)
        eventually(lambda: admin.exists("runner:{p0}:leader"), why="it leads")
        admin.execute_command("ACL", "SETUSER", "default", rights)
        said = cli("doctor", RUNNER_REDIS_URL=own_server.url)
    assert f"ok  supervisors without a worker: {os.uname().nodename}:{alone.pid}\n" in said.out
    assert said.code == 1, "no worker"


@pytest.mark.parametrize("option", ["nonsense=1", "ssl_ca_cert=/ca.pem", "timeout=3"])
@pytest.mark.parametrize(
    ("verb", "of"), [("runs", "REDIS"), ("doctor", "REDIS"), ("submit", "REDIS"), ("submit", "BROKER")]
)
def test_an_option_that_no_url_has(option, verb, of, cli, write_crew, server):
    url = f"redis{'s' if option.startswith('ssl') else ''}://127.0.0.1:6379/0?{option}"
    arguments = [write_crew(GOOD)] if verb == "submit" else []
    said = cli(verb, *arguments, **{"RUNNER_REDIS_URL": server.url, f"RUNNER_{of}_URL": url})
    assert said.code == 2, said
    assert (
        f"is not a Redis URL: unknown option {option.partition('=')[0]}; known: db, username, password"
        in said.out + said.err
    )
    assert "Traceback" not in said.out + said.err


def test_the_line_reads_as_sentences(unreachable, refusing_port):
    assert "refused. Start it" in unreachable("runs", f"redis://127.0.0.1:{refusing_port}/0")


def test_no_such_socket(unreachable, tmp_path):
    line = unreachable("runs", f"unix://{tmp_path}/no.sock")
    assert line.startswith(f"Redis at unix://{tmp_path}/no.sock cannot be reached: ")
    assert "No such file or directory" in line


def test_a_host_that_nobody_knows(unreachable):
    assert "Redis at redis://no.such.host.invalid:6379 cannot be reached: " in unreachable(
        "submit", "redis://no.such.host.invalid:6379"
    )


@pytest.mark.parametrize("verb", ["submit", "runs", "worker"])
@pytest.mark.parametrize(
    "url",
    [
        *("http://localhost:6379", "localhost:6379", "redis//x", "redis://localhost:port", "redis://localhost/name"),
        *("redis+sentinel://localhost", "redis+sentinel://localhost/store?nothing=1", "valkey://localhost/name"),
    ],
)
def test_not_a_redis_url_is_bad_usage(verb, url, cli, write_crew):
    said = cli(verb, *([write_crew(GOOD)] if verb == "submit" else []), RUNNER_REDIS_URL=url)
    assert said.code == 2
    assert said.error.startswith(f"{url} is not a Redis URL: ")


def test_how_a_url_begins_and_goes_on_is_said(cli):
    line = cli("runs", RUNNER_REDIS_URL="localhost:6379").error
    assert "it begins with none of redis://, " in line
    assert "redis+cluster://" in line
    assert "It is redis://USER:PASSWORD@HOST:PORT/DB;" in line


def test_a_database_that_a_server_does_not_have(unreachable, server):
    line = unreachable("runs", f"{server.url}?db=9999")
    assert line.endswith("It has fewer databases: check the number at the end of the URL, the first is 0.")


def test_the_option_counts_more_than_the_environment(cli, refusing_port, server):
    said = cli("runs", "--redis-url", f"redis://127.0.0.1:{refusing_port}", RUNNER_REDIS_URL=server.url)
    assert said.code == 4
    assert str(refusing_port) in said.error


@pytest.fixture
def guarded(tmp_path, eventually):
    """A Redis with a password: its socket."""
    path = tmp_path / "guarded.sock"
    server = subprocess.Popen(
        [
            find_binary(),
            "--port",
            "0",
            "--unixsocket",
            path,
            "--requirepass",
            "s3cret",
            "--save",
            "",
            "--dir",
            tmp_path,
        ],
        stdout=subprocess.DEVNULL,
    )
    eventually(path.exists, why="the server listens")
    yield path
    server.kill()
    server.wait()


@pytest.mark.parametrize("verb", ["submit", "runs", "worker"])
@pytest.mark.parametrize("login", ["", ":wrong-w0rd@", "somebody:wrong-w0rd@"])
def test_a_password_is_refused_and_not_shown(verb, login, unreachable, guarded):
    line = unreachable(verb, f"unix://{login}{guarded}")
    assert line.startswith("Redis at unix://")
    assert str(guarded) in line
    assert " refuses to authenticate: " in line
    assert line.endswith("Check user and password in the URL.")
    assert "wrong-w0rd" not in line


@pytest.mark.parametrize(
    "address",
    ["://:wrong-w0rd@{}:1/0", "://me:wrong-w0rd@{}:1", "://:wrong%40w0rd@{}:1", "://{}:1?password=wrong-w0rd"],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"])
def test_no_password_is_ever_shown(address, host, unreachable):
    line = unreachable("runs", "redis" + address.format(host))
    assert host in line
    assert "w0rd" not in line
    assert "wrong" not in line


def test_the_right_password_lets_in(cli, guarded):
    said = cli("runs", "--json", RUNNER_REDIS_URL=f"unix://:s3cret@{guarded}")
    assert (said.code, said.out) == (0, "[]\n")


def test_a_redis_that_goes_away_in_the_middle(own_server, cli, monkeypatch):
    """Between the look at the server and the question."""
    from runner.client import store

    def check(client, url):
        real(client, url)
        own_server.kill()

    real = store.check
    monkeypatch.setattr(store, "check", check)
    monkeypatch.setattr(waiting_client, "PATIENCE", 0.2)
    said = cli("runs", RUNNER_REDIS_URL=own_server.url)
    assert said.code == 4
    assert said.error.startswith("the connection to Redis was lost: ")


def test_doctor_says_what_is_wrong(cli, refusing_port):
    said = cli("doctor", RUNNER_REDIS_URL=f"redis://127.0.0.1:{refusing_port}")
    assert said.code == 4
    assert f"!!  Redis: Redis at redis://127.0.0.1:{refusing_port} cannot be reached" in said.out
    assert "Traceback" not in said.err


def test_an_account_that_may_not_write_is_told_so(guarded, cli, write_crew):
    url = f"unix://:s3cret@{guarded}"
    with contextlib.closing(Redis.from_url(url)) as admin:
        admin.acl_setuser(
            "reader", enabled=True, passwords=["+pass"], categories=["+@read", "+@connection"], keys=["*"]
        )
    said = cli("submit", write_crew(GOOD), RUNNER_REDIS_URL=f"unix://reader:pass@{guarded}")
    assert said.code == 4, said
    assert "no permissions" in said.error


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hid-den/x@127.0.0.1:6379/0",
        "redis://:hid-den#x@127.0.0.1:6379/0",
        "redis://user:hid-den?x@127.0.0.1:6379/0",
        "redis:/:hid-den@127.0.0.1:6379/0",
        "redis//:hid-den@127.0.0.1",
        ":hid-den@127.0.0.1:6379",
        "redis://:hid-den@x:y@127.0.0.1:1/0",
    ],
)
def test_a_password_is_never_shown_however_it_is_mistyped(url, cli):
    said = cli("runs", RUNNER_REDIS_URL=url)
    line = said.error
    assert said.code in (2, 4)
    assert "hid" not in line
    assert "den" not in line
    assert "127.0.0.1" in line


@pytest.mark.parametrize("verb", ["submit", "worker", "supervisor"])
def test_a_broker_that_is_not_there(verb, cli, write_crew, server, refusing_port):
    said = cli(
        verb, *([write_crew(GOOD)] if verb == "submit" else []),
        RUNNER_REDIS_URL=server.url, RUNNER_BROKER_URL=f"redis://:hidden@127.0.0.1:{refusing_port}/0",
    )  # fmt: skip
    assert said.code == 4
    assert said.error.startswith("the broker at redis://")
    assert f"127.0.0.1:{refusing_port}" in said.error
    assert "hidden" not in said.error
