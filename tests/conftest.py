"""Real servers, real workers. A test waits for what it expects, with a deadline, and says what it saw instead."""

import contextlib
import functools
import os
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.testing import Fleet, RedisServer, eventually
from runner.testing import fleet as testing_fleet

from .support.fork_server import ForkServer


def _not_at_us(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """``send``, but for a pid that stands for many: 0 is our own group, the test command with it; -1 is everybody."""

    @functools.wraps(send)
    def guarded(pid: int, signum: int) -> None:
        if pid <= 1 or (send is _killpg and pid == os.getpgrp()):
            raise AssertionError(f"signal {signum} for {pid}, which is the test run itself")
        send(pid, signum)

    return guarded


_killpg = os.killpg


@pytest.fixture(autouse=True, scope="session")
def signals_go_to_others() -> Iterator[None]:
    """A process that was not found (a pid of 0) fails its test, where it would have killed the whole test command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "kill", _not_at_us(os.kill))
        patch.setattr(os, "killpg", _not_at_us(os.killpg))
        yield


@pytest.fixture
def started_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here each worker and command is started as a person's is, by an interpreter that imports all by itself."""
    monkeypatch.setattr(testing_fleet, "launch", subprocess.Popen)


@pytest.fixture(autouse=True)
def environment_is_put_back() -> Iterator[None]:
    """Commands put their options there, and some tests run them in this process: the next has none of it."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@pytest.fixture(autouse=True, scope="session")
def processes_are_forked() -> Iterator[None]:
    """Commands and workers have imported already what they need."""
    with contextlib.closing(ForkServer()) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(testing_fleet, "launch", server.popen)
        yield


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RedisServer]:
    """One server for the whole session; tests use `server`, which empties it."""
    with RedisServer() as one:
        yield one


@pytest.fixture
def server(shared_server: RedisServer) -> Iterator[RedisServer]:
    """An empty server; fails the test if it leaves a key behind that nobody listed or that never goes."""
    shared_server.flush()
    yield shared_server
    shared_server.flush()


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may kill."""
    with RedisServer() as one:
        yield one


class Backup:
    """What a server held at one time; `restore` puts it back under whoever is at work."""

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(url)
        self._keys = {key: (self._redis.dump(key), max(self._redis.pttl(key), 0)) for key in self._redis.keys("*")}

    def restore(self) -> None:
        """All of it, at one stroke; what came since is gone."""
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.flushall()
            for key, (value, ttl) in self._keys.items():
                pipe.restore(key, ttl, value)
            pipe.execute()
        self._redis.close()


@pytest.fixture
def backup() -> Callable[[str], Backup]:
    """Takes a backup of the server with this URL."""
    return Backup


@pytest.fixture
def redis(server: RedisServer) -> Iterator[Redis]:
    """A decoding client of the empty server."""
    with Redis.from_url(server.url, decode_responses=True, encoding_errors="surrogateescape") as client:
        yield client


@pytest.fixture
def client(server: RedisServer) -> Iterator[Client]:
    """The Python client on the empty server."""
    with Client(server.url) as one:
        yield one


@pytest.fixture
def write_crew(tmp_path: Path) -> Callable[..., Path]:
    """Writes a crew file (and files beside it) in a folder of its own; gives its path."""

    def write(code: str, name: str = "crew", **beside: str) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "crew.py").write_text(textwrap.dedent(code))
        for file, text in beside.items():
            (folder / file.replace("__", ".")).write_text(textwrap.dedent(text))
        return folder / "crew.py"

    return write


@pytest.fixture
def fleet(server: RedisServer) -> Iterator[Fleet]:
    """Workers on the empty server."""
    with Fleet(server.url) as one:
        yield one
        one.end()
        print(one.log()[-4000:])  # shown where the test failed


@pytest.fixture
def own_fleet(own_server: RedisServer) -> Iterator[Fleet]:
    """Workers on a server that the test may kill."""
    with Fleet(own_server.url) as one:
        yield one


@pytest.fixture(name="eventually", scope="session")
def _eventually() -> Callable[..., Any]:
    """`eventually`, as a fixture."""
    return eventually
