"""One server for any number of processes, and none when there is nobody."""

import os
import signal
import stat
import threading
import time
from pathlib import Path

import pytest
import redis
from kombu import Connection

from runner.client.embedded import join, running

APPEND_ONE = "import redis; redis.Redis.from_url(membership.url).rpush('who', 'user')"


def test_processes_that_join_at_once_get_one_server(state):
    # Given nothing running / When several processes join in the same moment
    users = [state.cold_user(APPEND_ONE + "; print('done', flush=True)") for _ in range(6)]
    for user in users:
        assert user.stdout.readline() == "joined\n"
        assert user.stdout.readline() == "done\n"
    # Then they all wrote to the same server, under one keeper
    with join(state.path) as membership, state.client(membership.url) as client:
        assert client.llen("who") == len(users)
        assert len(state.keepers) == len(state.servers) == 1


def test_threads_that_join_at_once_get_one_server(state):
    urls, barrier = [], threading.Barrier(4)

    def work():
        barrier.wait()
        with join(state.path) as membership, state.client(membership.url) as client:
            urls.append(membership.url)
            client.incr("n")
            barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with join(state.path) as membership, state.client(membership.url) as client:
        assert client.get("n") == "4"
    assert set(urls) == {membership.url}


def test_the_last_to_leave_lets_the_server_go_and_the_data_stays(state):
    assert running(state.path) is None
    assert not state.path.exists(), "looking must not create anything"
    with join(state.path) as membership, state.client(membership.url) as client:
        client.set("kept", "yes")
        assert running(state.path) == membership.url
    state.wait_gone()
    assert running(state.path) is None
    with join(state.path) as membership, state.client(membership.url) as client:
        assert client.get("kept") == "yes"


def test_a_killed_user_counts_no_more(state):
    user = state.user("import redis; redis.Redis.from_url(membership.url).set('kept', 'yes'); print('set', flush=True)")
    assert user.stdout.readline() == "set\n"
    user.send_signal(signal.SIGKILL)
    user.wait()
    state.wait_gone()
    with join(state.path) as membership, state.client(membership.url) as client:
        assert client.get("kept") == "yes"


def test_the_server_stays_while_anybody_uses_it(state):
    first = join(state.path)
    pid = state.server_pid(first.url)
    user = state.user()
    first.close()
    first.close()  # closing twice does nothing
    # When the keeper has had every chance to see an idle server
    with pytest.raises(AssertionError, match="not within"):
        state.wait_for(lambda: running(state.path) is None, "gone", seconds=0.4)
    assert state.server_pid(first.url) == pid
    with pytest.raises(ValueError, match="closed"):
        first.rejoin()
    user.kill()
    state.wait_gone()


def test_a_forked_child_shares_the_membership_of_its_parent(state):
    user = state.user(
        "import os, signal\npid = os.fork()\nif pid:\n    membership.close()\n    print(pid, flush=True)\n"
        "else:\n    signal.pause()\n"
    )
    child = int(user.stdout.readline())
    try:
        user.kill()
        user.wait()
        with pytest.raises(AssertionError, match="not within"):
            state.wait_for(lambda: running(state.path) is None, "gone", seconds=0.4)
    finally:
        os.kill(child, signal.SIGKILL)
    state.wait_gone()


def test_a_program_started_by_a_user_does_not_keep_the_server(state):
    user = state.user(
        "import subprocess; p = subprocess.Popen(['sleep', '60'], close_fds=False); print(p.pid, flush=True)"
    )
    program = int(user.stdout.readline())
    try:
        user.kill()
        state.wait_for(lambda: not state.keepers, "keeper gone")
        os.kill(program, 0)
    finally:
        os.kill(program, signal.SIGKILL)


def test_ctrl_c_in_the_terminal_of_the_starter_spares_the_server(state):
    starter = state.user()
    with join(state.path) as membership:
        pid = state.server_pid(membership.url)
        keeper = state.keeper
        # a terminal signals one process group, in its session
        assert os.getsid(starter.pid) not in (os.getsid(keeper), os.getsid(pid))
        os.killpg(starter.pid, signal.SIGINT)
        starter.wait()
        membership.rejoin()
        assert state.server_pid(membership.url) == pid
        assert state.keeper == keeper


def test_rounds_of_joining_and_leaving_without_grace_lose_nothing(state, monkeypatch):
    monkeypatch.setenv("RUNNER_REDIS_GRACE", "0")
    servers = set()
    for count in range(1, 9):
        with join(state.path) as membership, state.client(membership.url) as client:
            assert client.incr("rounds") == count
            servers.add(client.info("server")["process_id"])
        if count % 3 == 0:
            state.wait_gone()  # however slow it stops
        time.sleep(count * 0.008)  # the next comes before, while and after the server stops
    assert len(servers) > 2


def test_what_the_server_is_told(state):
    with join(state.path) as membership, state.client(membership.url) as client:
        settings = client.config_get("*")
        socket = Path(membership.url.removeprefix("unix://"))
    expected = {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-use-rdb-preamble": "no",
        "maxmemory-policy": "noeviction",
        "save": "",
    }
    assert {name: settings[name] for name in expected} == expected
    assert socket.parent == state.path
    for path, mode in ((socket, 0o700), (state.path, 0o700), (state.path / "data", 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_every_write_synced_on_request(state, monkeypatch):
    monkeypatch.setenv("RUNNER_APPENDFSYNC", "always")
    with join(state.path) as membership, state.client(membership.url) as client:
        assert client.config_get("appendfsync") == {"appendfsync": "always"}


def test_kombu_reaches_the_server_by_its_broker_url(state):
    with join(state.path) as membership:
        with Connection(membership.broker_url) as connection:
            queue = connection.SimpleQueue("q")
            queue.put({"n": 1})
            message = queue.get(timeout=30)
            assert message.payload == {"n": 1}
            message.ack()
            queue.close()
        with redis.Redis.from_url(membership.url) as client:
            assert client.exists("_kombu.binding.q")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
def test_keys_of_the_user_are_not_passed_on(state, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with join(state.path) as membership:
        for pid in (state.keeper, state.server_pid(membership.url)):
            assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()
