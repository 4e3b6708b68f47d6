"""A server that cuts connections or refuses for a while is asked again; what it refuses for good is raised at once."""

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from runner.providers.redis import keys, outages
from runner.providers.redis.connection import connect, patient, refusing
from runner.providers.redis.outages import NotNow
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.rate_limit import RunPace
from runner.testing import RedisServer

from .driver import plan_of

EVENTS = keys.key("events_key", run=keys.run_key("r-1"))

PASSING = [
    b"OOM command not allowed when used memory > 'maxmemory'.",
    b"OOM command not allowed when used memory > 'maxmemory'. script: 1264a9402e40, on @user_script:1.",
    b"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    b"MISCONF Errors writing to the AOF file: No space left on device",
    b"NOREPLICAS Not enough good replicas to write.",
    b"NOREPLICAS Not enough good replicas to write. script: on @user_script:1.",
    b"READONLY You can't write against a read only replica.",
    b"READONLY You can't write against a read only replica. script: on @user_script:1.",
    b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    b"LOADING Valkey is loading the dataset in memory",
    b"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    b"CLUSTERDOWN The cluster is down",
    b"TRYAGAIN Multiple keys request during rehashing of slot",
    b"BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    b"WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:1.",
    b"EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.",
    b"EXECABORT Transaction discarded because of: BUSY Valkey is busy running a script.",
    b"EXECABORT Transaction discarded because of: LOADING Valkey is loading the dataset in memory",
    b"ERR max number of clients reached",
    b"NOPERM User reader has no permissions to run the 'get' command",
    b"NOPERM No permissions to access a key",
    b"ERR ACL failure in script: User reader has no permissions to run the 'hset' command script: on @user_script:1.",
    b"NOAUTH Authentication required.",
    b"WRONGPASS invalid username-password pair or user is disabled.",
    b"EXECABORT Transaction discarded because of: NOPERM No permissions to access a key",
]
LASTING = [
    b"EXECABORT Transaction discarded because of previous errors.",
    b"NOPERM User reader has no permissions to run the 'client|list' command",
    b"ERR user_script:1: OOM is only a word here script: on @user_script:1.",
    b"ERR unknown command 'X'",
    b"MOVED 15882 127.0.0.1:17202",
]


class Between:
    """Stands between a client and its server, and answers the next commands of a name in its own way."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.path, self._server = folder / "between.sock", server
        self.name, self.answers = b"", list[bytes]()
        self.asked: list[bytes] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.path))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def close(self) -> None:
        self._listening.close()

    def times(self, many: int, name: bytes, answer: bytes, *before: bytes) -> None:
        """Answer so many commands so: with an error, ``cut before`` they are done, or ``cut after``."""
        self.name, self.answers = name, [*before, *[answer] * many]
        self.asked.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        reader = hiredis.Reader()
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self._server.socket))
            while data := client.recv(65536):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    if (answer := self._answered(command, server)) is None:
                        return
                    client.sendall(answer)

    def _answered(self, command: list[bytes], server: socket.socket) -> bytes | None:
        self.asked += [command[0]] if command[0] == self.name else []
        own = self.answers.pop(0) if command[0] == self.name and self.answers else b""
        if own == b"cut before":
            return None
        if own not in (b"", b"cut after"):
            return b"-" + own + b"\r\n"
        server.sendall(b"".join([b"*%d\r\n" % len(command), *(b"$%d\r\n%b\r\n" % (len(w), w) for w in command)]))
        reader, answer = hiredis.Reader(), b""
        while reader.gets() is False:
            data = server.recv(65536)
            answer += data
            reader.feed(data)
        return None if own else answer


@pytest.fixture
def between(tmp_path: Path, server: RedisServer) -> Iterator[Between]:
    one = Between(tmp_path, server)
    yield one
    one.close()


def by_command(url: str) -> Any:
    with patient(url) as client:
        return client.get("key")


def by_pipeline(url: str) -> Any:
    with patient(url) as client:
        pipe = client.pipeline(transaction=False)
        pipe.exists("key")
        pipe.get("key")
        return pipe.execute()[1]


def by_transaction(url: str) -> Any:
    with patient(url) as client:
        pipe = client.pipeline(transaction=True)
        pipe.exists("key")
        pipe.get("key")
        return pipe.execute()[1]


def by_line(url: str) -> Any:
    with patient(url) as client:
        line = PipelinedConnection(client)
        line.send_nowait("PING")
        answer = line.execute_command("GET", "key")
        line.close()
        return answer


WAYS = [by_command, by_pipeline, by_transaction, by_line]


@pytest.fixture(autouse=True)
def value(redis: Any) -> Iterator[None]:
    redis.set("key", "value")
    yield
    redis.delete("key")


@pytest.fixture(autouse=True)
def is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time that it may take."""
    monkeypatch.setattr(outages, "MENDED", 10.0)


@pytest.mark.parametrize("answer", [*PASSING, b"cut before", b"cut after"])
@pytest.mark.parametrize("way", WAYS)
def test_what_passes_is_asked_again(between: Between, way: Callable[[str], Any], answer: bytes) -> None:
    between.times(3, b"GET", answer)
    assert way(between.url) == "value"
    assert len(between.asked) == 4


@pytest.mark.parametrize("way", WAYS)
def test_a_key_of_another_type_that_cannot_be_removed_is_raised(
    between: Between, way: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "MENDED", 0.05)
    between.times(1000, b"GET", b"WRONGTYPE Operation against a key holding the wrong kind of value")
    with pytest.raises(RedisError, match="WRONGTYPE"):
        way(between.url)


@pytest.mark.parametrize("way", WAYS)
def test_after_a_key_of_another_type_an_outage_is_waited_out_all_the_same(
    between: Between, way: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "MENDED", 0.3)
    between.times(6, b"GET", b"LOADING Valkey is loading", b"WRONGTYPE Operation against a key")
    assert way(between.url) == "value"


def test_a_line_waits_for_an_answer_no_longer_than_its_connection_may(server: RedisServer) -> None:
    """Also once it was opened again. The system counts the time, so nothing asks it before each piece."""
    with connect(server.url, timeout=0.05) as client:
        line = PipelinedConnection(client)
        for _ in range(2):
            line.execute_command("PING")
            assert line._connection._sock.gettimeout() is None
            with pytest.raises(RedisTimeout, match="did not answer in time"):
                line.ask("BLPOP", "nothing", "0")
        assert line.ask_all(hiredis.pack_command(("BLPOP", "nothing", "0")), 1) is None
        assert line.execute_command("PING") == "PONG"
        line.close()


@pytest.mark.parametrize("answer", LASTING)
@pytest.mark.parametrize("way", WAYS)
def test_what_does_not_pass_is_raised_at_once(between: Between, way: Callable[[str], Any], answer: bytes) -> None:
    between.times(3, b"GET", answer)
    with pytest.raises(RedisError) as raised:
        way(between.url)
    assert not isinstance(raised.value, NotNow)
    assert len(between.asked) == 1


@pytest.mark.parametrize("answer", [b"BUSY Valkey is busy running a script.", b"LOADING wait"])
def test_a_new_connection_is_refused_and_then_not(between: Between, answer: bytes) -> None:
    """Also what a connection begins with."""
    between.times(2, b"CLIENT", answer)
    assert by_command(between.url) == "value"
    between.times(2, b"CLIENT", answer)
    assert by_line(between.url) == "value"


def test_who_is_readonly_is_left(between: Between, server: RedisServer) -> None:
    """A name or an address may lead elsewhere by now: the next try is on another connection."""
    with patient(between.url) as client, connect(server.url) as admin:
        before = client.client_id()
        between.times(1, b"GET", b"NOREPLICAS Not enough good replicas to write.")
        client.get("key")
        assert client.client_id() == before
        between.times(1, b"GET", b"READONLY You can't write against a read only replica.")
        client.get("key")
        assert client.client_id() != before
        assert len([one for one in admin.client_list() if one["name"] == "runner"]) == 2  # it, and the admin


def test_a_watcher_is_told_and_asks_again_itself(between: Between) -> None:
    between.times(1, b"GET", b"OOM command not allowed when used memory > 'maxmemory'.")
    with connect(between.url) as client:
        with pytest.raises(NotNow, match=r"^OOM command not allowed") as raised:
            client.get("key")
        assert outages.format_store_error(raised.value).startswith(
            "it refuses writes, because its memory is full (OOM command"
        )
        assert client.get("key") == "value"


def test_one_line_when_it_begins_and_one_when_it_ends(between: Between, caplog: Any) -> None:
    caplog.set_level(logging.WARNING)
    between.times(1, b"GET", b"cut before")
    by_command(between.url)
    assert not caplog.messages, "a connection that had to be made anew is none"
    between.times(6, b"GET", b"NOREPLICAS Not enough good replicas to write.")
    threads = [threading.Thread(target=by_command, args=[between.url]) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    begins, ends = caplog.messages
    assert begins == (
        "waiting for the store: it refuses writes, because too few replicas are connected to it "
        "(NOREPLICAS Not enough good replicas to write.)"
    )
    assert ends.startswith("the store is back after 0.")


@pytest.mark.parametrize("lost", [1, 3])
def test_what_was_said_and_not_answered_is_said_once(redis: Any, driver: Any, lost: int) -> None:
    driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    before = redis.xlen(EVENTS)
    driver.line.lose = lost
    task.note("task_log", "here")
    driver.line.lose = lost
    seq = task.append_event("x", "a")
    assert redis.xlen(EVENTS) == before + 2
    assert task.append_event("x", "a") == seq + 1, "another one, though it says the same"


def test_a_turn_that_was_not_answered_is_taken_once(line: Any, clock: Any) -> None:
    pace = RunPace(line, "r-1")
    line.lose = 2
    assert pace.acquire([("", 2)]) == 0
    assert pace.acquire([("", 2)]) == 0
    assert pace.acquire([("", 2)]) == 60


def test_whether_writes_are_refused_can_be_asked(redis: Any, own_server: RedisServer) -> None:
    with connect(own_server.url) as client:
        assert refusing(client) is None
        client.config_set("maxmemory", 1)
        assert outages.format_store_error(refusing(client)).startswith(
            "it refuses writes, because its memory is full (OOM "
        )
        client.config_set("maxmemory", 0)
        client.config_set("min-replicas-to-write", 1)
        assert outages.format_store_error(refusing(client)).startswith(
            "it refuses writes, because too few replicas are connected to it (NOREPLICAS "
        )
        assert client.dbsize() == 0


def test_calls_of_two_threads_that_end_at_once_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(outages.time, "monotonic", lambda: now[0])
    outage = outages.Outage()

    class Meanwhile(dict[object, float]):
        def pop(self, who: object, *default: Any) -> Any:
            found = super().pop(who, *default)
            if who == "one":
                outage.ends("other")
            return found

    outage.waiting = Meanwhile()
    for who in ("one", "one", "other"):
        outage.begins(who, NotNow("OOM", "full"))
    now[0] = 10.0
    outage.ends("one")
    assert (bool(outage.waiting), outage.seconds) == (False, 10.0)


def test_an_error_among_many_answers_is_raised_and_the_others_are_no_later_questions(server: RedisServer) -> None:
    with connect(server.url) as client:
        client.set("text", "x")
        client.rpush("many", *range(500))
        questions = [("LINDEX", "many", number) for number in range(500)]
        assert client.ask_all(questions) == [str(number) for number in range(500)]
        with pytest.raises(NotNow, match="WRONGTYPE"):
            client.ask_all([*questions[:250], ("LINDEX", "text", 0), *questions[250:]])
        with pytest.raises(RedisError, match="unknown command"):
            client.ask_all([("GET", "text"), ("X",)])
        assert client.ask_all([("GET", "text"), *questions[:2]]) == ["x", "0", "1"]
