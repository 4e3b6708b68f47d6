"""Each provider passes the published suite, whose other processes are forked here."""

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from runner.providers import BaseProvider, JsonProvider, RedisProvider, SqliteProvider
from runner.testing import ProviderConformance, writers

from ...support.fork_server import ForkServer


@pytest.fixture(autouse=True, scope="module")
def _writers_are_forked(processes_are_forked: ForkServer) -> Iterator[None]:
    def popen(words: list[str], **options: Any) -> "subprocess.Popen[Any]":
        return processes_are_forked.popen(words, **{**options, "env": os.environ})  # what they import is on its path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
        yield


class TestJson(ProviderConformance):
    @pytest.fixture
    def provider(self) -> BaseProvider:
        return JsonProvider()

    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        return str(tmp_path / "some where" / "check#points")

    def tear(self, location: str) -> None:
        path = Path(location)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


class TestSqlite(ProviderConformance):
    @pytest.fixture
    def provider(self) -> BaseProvider:
        return SqliteProvider()

    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        return str(tmp_path / "some where" / "check#points %3f?.db")

    def tear(self, location: str) -> None:
        path, _, checkpoint_id = location.rpartition("#")
        with sqlite3.connect(path) as database:
            database.execute(
                "UPDATE checkpoints SET data = substr(data, 1, length(data) / 2) WHERE id = ?", (checkpoint_id,)
            )
        database.close()


class TestRedis(ProviderConformance):
    @pytest.fixture
    def provider(self) -> BaseProvider:
        return RedisProvider()

    def elsewhere(self, provider: BaseProvider) -> str:
        """One that is known to be dead soon."""
        return f"{super().elsewhere(provider)}\nfrom runner.providers.redis import provider as of\nof.LEASE = 5.0"

    @pytest.fixture
    def location(self, server: Any) -> str:
        return f"{server.url}?prefix=some where/check|points"

    def tear(self, location: str) -> None:
        socket, _, checkpoint_id = location.removeprefix("unix://").replace("?", "#").split("#")
        home = "runner:{states:some where/check%7Cpoints}"
        with Redis(unix_socket_path=socket) as redis:
            number = redis.hget(f"{home}:lineage", checkpoint_id).partition(b"|")[0]
            entry = redis.hget(f"{home}:entries", number)
            redis.hset(f"{home}:entries", number, entry[: len(entry) // 2])
