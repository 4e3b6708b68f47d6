"""Whatever is killed, the data stays, and at the end nothing is left running."""

import contextlib
import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import redis

from runner.client.embedded import join, keeper, membership
from runner.core.errors import StoreUnreachable


def test_a_killed_server_is_started_again(state):
    with join(state.path) as membership:
        with state.client(membership.url) as client:
            client.rpush("list", *range(1000))
        first, keeper_pid = state.server_pid(membership.url), state.keeper
        state.kill(first)
        membership.rejoin()
        assert state.server_pid(membership.url) != first
        assert state.keeper == keeper_pid
        with state.client(membership.url) as client:
            assert client.llen("list") == 1000


def test_a_killed_server_is_started_again_without_anybody_asking(state):
    with join(state.path) as membership:
        state.kill(state.server_pid(membership.url))
        state.wait_for(lambda: keeper.answers(state.path / "redis.sock"), "server back")


@pytest.mark.parametrize("how", ["rejoin", "join"])
def test_after_a_killed_keeper_the_next_to_ask_restores_both(state, how):
    with join(state.path) as membership:
        with state.client(membership.url) as client:
            client.set("kept", "yes")
        server, keeper_pid = state.server_pid(membership.url), state.keeper
        state.kill(keeper_pid)
        if how == "rejoin":
            membership.rejoin()
        else:
            join(state.path).close()
        assert state.keeper != keeper_pid
        assert state.server_pid(membership.url) != server
        with state.client(membership.url) as client:
            assert client.get("kept") == "yes"


def test_keeper_and_server_killed_together(state):
    with join(state.path) as membership:
        with state.client(membership.url) as client:
            client.set("kept", "yes")
        keeper_pid, server = state.keeper, state.server_pid(membership.url)
        state.kill(keeper_pid)
        with contextlib.suppress(ProcessLookupError):  # on Linux it may have gone with its keeper by now
            state.kill(server)
        membership.rejoin()
        with state.client(membership.url) as client:
            assert client.get("kept") == "yes"


@pytest.mark.skipif(not Path("/proc").exists(), reason="elsewhere a server outlives its keeper")
def test_a_killed_keeper_takes_its_server_along(state):
    with join(state.path):
        state.kill(state.keeper)
        state.wait_gone()


def test_a_server_that_outlived_its_keeper_is_replaced(state, monkeypatch, tmp_path):
    # Given a keeper as on systems whose kernel does not tell children of their parent's death
    source = Path(keeper.__file__).read_text()
    mortal = tmp_path / "keeper.py"
    mortal.write_text(source.replace('if sys.platform == "linux"', "if False"))
    assert mortal.read_text() != source
    monkeypatch.setattr(keeper, "__file__", str(mortal))
    with join(state.path) as membership:
        with state.client(membership.url) as client:
            client.set("kept", "yes")
        orphan = state.server_pid(membership.url)
        state.kill(state.keeper)
        state.wait_for(lambda: not state.keepers, "keeper gone")
        assert state.servers == [orphan]
        # When somebody asks again
        membership.rejoin()
        # Then another server has the data, alone
        assert state.servers == [state.server_pid(membership.url)] != [orphan]
        with state.client(membership.url) as client:
            assert client.get("kept") == "yes"


def test_a_keeper_told_to_stop_ends_cleanly_and_the_next_takes_over(state):
    with join(state.path) as membership:
        with state.client(membership.url) as client:
            client.set("kept", "yes")
        first = state.keeper
        os.kill(first, signal.SIGTERM)
        state.wait_for(lambda: first not in state.keepers, "first keeper gone")
        membership.rejoin()
        with state.client(membership.url) as client:
            assert client.get("kept") == "yes"


def test_a_removed_socket_comes_back(state):
    with join(state.path) as membership:
        socket = state.path / "redis.sock"
        socket.unlink()
        membership.rejoin()
        assert socket.exists()


@pytest.mark.parametrize("name", ["state", "long" * 30])  # with the socket in it, and elsewhere
def test_a_removed_state_directory_leaves_no_process(new_state, name):
    state = new_state(name)
    with join(state.path) as membership:
        while state.path.exists():  # the server may still write a line to its log while the folder is being emptied
            shutil.rmtree(state.path, ignore_errors=True)
        state.wait_gone()
        # and the member who stayed can have it made anew, and is counted there
        membership.rejoin()
        with pytest.raises(AssertionError, match="not within"):
            state.wait_for(lambda: not state.keepers, "keeper gone", seconds=0.4)


def test_logs_do_not_grow_without_bound(state, monkeypatch):
    state.path.mkdir(mode=0o700)
    logs = [state.path / "redis.log", state.path / "keeper.log"]
    for log in logs:
        log.write_bytes(b"x" * (keeper.LOG_LIMIT + 1))
    with join(state.path):
        assert all(log.stat().st_size < 100_000 for log in logs)
        # also while the server runs
        logs[0].write_bytes(b"x" * (keeper.LOG_LIMIT + 1))
        state.wait_for(lambda: logs[0].stat().st_size < 100_000, "log emptied")


def test_chaos_loses_no_acknowledged_write(state, monkeypatch):
    """Servers and keepers are killed at random under writers who only rejoin when their connection breaks.

    With `everysec` a server answers before it has written, while its disk syncs: up to two seconds of that can go.
    """
    monkeypatch.setenv("RUNNER_APPENDFSYNC", "always")
    chance = random.Random(7)
    stop = threading.Event()
    acknowledged: dict[int, list[int]] = {0: [], 1: []}
    errors: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            with join(state.path) as membership:
                number = 0
                while not stop.is_set():
                    number += 1
                    try:
                        with redis.Redis.from_url(membership.url, socket_timeout=5, retry=None) as client:
                            for _ in range(50):
                                client.rpush(f"log{writer}", number)
                                acknowledged[writer].append(number)
                                number += 1
                    except redis.RedisError:
                        membership.rejoin()
        except BaseException as exc:
            errors.append(exc)

    writers = [threading.Thread(target=write, args=(writer,)) for writer in acknowledged]
    for writer in writers:
        writer.start()
    kills, most = 0, 0
    began = time.monotonic()

    def enough() -> bool:
        written = min(map(len, acknowledged.values()))
        return time.monotonic() - began > 2.5 and kills >= 5 and written > 50

    while not enough() and not errors and time.monotonic() - began < 60:
        most = max(most, len(state.servers))
        victims = chance.choice([state.servers, state.keepers])
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
        stop.wait(chance.uniform(0.05, 0.3))
    stop.set()
    for writer in writers:
        writer.join()
    assert errors == []
    with join(state.path) as membership, state.client(membership.url) as client:
        for writer, numbers in acknowledged.items():
            stored = set(map(int, client.lrange(f"log{writer}", 0, -1)))
            assert set(numbers) <= stored
            assert len(numbers) > 50
    assert kills >= 5
    assert most <= 1


def test_a_disk_without_room_is_named_soon(new_state, monkeypatch):
    """A server that finds none says so in its log, for which there is no room either."""
    state = new_state("full")
    monkeypatch.setattr(membership, "LEAST", 2**62)
    monkeypatch.setattr(keeper, "answers", lambda _: False)
    with pytest.raises(StoreUnreachable, match=r"there is no room on the disk of .*/full"):
        join(state.path)
