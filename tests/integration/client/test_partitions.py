"""Several servers: where a run goes, where it is found, and what one server that is down means."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cli import batch as batches
from runner.client import Client, prepare
from runner.client.batch_state import BatchState
from runner.client.partitions import PartitionedClient
from runner.client.store import named_servers
from runner.core.errors import NotFound, StoreUnreachable, UsageError
from runner.core.states import RunStatus
from runner.providers.records import RunRecord
from runner.providers.redis.address import several
from runner.providers.redis.partitions import place_of, places_of
from runner.testing import RedisServer, eventually

CREW = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="write", run=lambda ctx: "done")])
"""
IDS = [f"r-{number:012x}" for number in range(3000)]


KEEPS = ("--appendfsync", "always")  #: a server that is killed has all that it acknowledged


@pytest.fixture
def servers() -> Iterator[list[RedisServer]]:
    """Three servers, which the test may kill."""
    with RedisServer(arguments=KEEPS) as a, RedisServer(arguments=KEEPS) as b, RedisServer(arguments=KEEPS) as c:
        yield [a, b, c]


def of(*servers: RedisServer) -> PartitionedClient:
    """A client of these servers."""
    client = Client(",".join(server.url for server in servers))
    assert isinstance(client, PartitionedClient)
    return client


def test_runs_spread_evenly_and_a_server_added_takes_only_what_it_gets() -> None:
    assert all(900 < count < 1100 for count in Counter(place_of(run_id, 3) for run_id in IDS).values())
    for run_id in IDS:
        assert place_of(run_id, 4) in (place_of(run_id, 3), 3)
        assert places_of(run_id, [3, 4])[-1] == place_of(run_id, 3)
        assert places_of(run_id, [3]) == [place_of(run_id, 3)]


def test_urls_are_split_at_schemes_and_one_is_refused_twice() -> None:
    sentinels = "redis+sentinel://h1,h2,h3/main/0"
    assert several(f"{sentinels}, redis://a") == (sentinels, "redis://a")
    with pytest.raises(UsageError, match="twice"):
        several("redis://:secret@a,redis://:secret@a")


def test_each_server_has_its_own_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_REDIS_URL", "redis://a,redis://b")
    monkeypatch.setenv("RUNNER_BROKER_URL", "amqp://q/a,amqp://q/b")
    assert [(one.url, one.broker, one.part) for one in named_servers()] == [
        ("redis://a", "amqp://q/a", (0, 2)), ("redis://b", "amqp://q/b", (1, 2)),
    ]  # fmt: skip
    assert [one.url for one in named_servers(2)] == ["redis://b"]
    with pytest.raises(
        UsageError,
        match=r"^--partition 3: there are only 2 partitions in --redis-url \(RUNNER_REDIS_URL\), counted from 1$",
    ):
        named_servers(3)
    monkeypatch.delenv("RUNNER_BROKER_URL")
    monkeypatch.setenv("RUNNER_REDIS_URL", "redis://a")
    with pytest.raises(UsageError, match=r"^--partition 2: there is only 1 partition in"):
        named_servers(2)
    monkeypatch.setenv("RUNNER_REDIS_URL", "redis://a,redis://b")
    monkeypatch.setenv("RUNNER_BROKER_URL", "amqp://q")
    with pytest.raises(UsageError, match="2 servers and 1 brokers"):
        named_servers()


def test_each_run_is_found_wherever_it_is_and_lists_are_merged(
    servers: list[RedisServer], write_crew: Callable[..., Path]
) -> None:
    crew = prepare(str(write_crew(CREW)))
    with Client(servers[0].url) as one:
        first = [one.submit(crew, id=f"first {n}").id for n in range(6)]
    with of(*servers[:2]) as two:
        assert [two.submit(crew, id=f"first {n}").created for n in range(6)] == [False] * 6
        old = [two.submit(crew).id for _ in range(6)] + [two.submit(crew, id=f"key {n}").id for n in range(3)]
        with of(*servers) as three:
            assert [three.run(run_id).id for run_id in first + old] == first + old  # also those now of another server
            assert [three.submit(crew, id=f"key {n}").created for n in range(3)] == [False] * 3
            new = three.submit(crew).id
            listed = three.runs()
            assert ({run.id for run in listed}, three.away) == ({*first, *old, new}, ())
            assert [run.created_at for run in listed] == sorted((run.created_at for run in listed), reverse=True)
            assert len(three.runs(limit=4)) == 4
            with pytest.raises(NotFound):
                three.run("r-000000000000")
        with pytest.raises(UsageError, match=r"is server [12] of 3, and is named as server [12] of 2"):
            two.submit(crew, id="another key")  # which it would look for in two places only


def test_servers_that_are_named_otherwise_are_refused(
    servers: list[RedisServer], write_crew: Callable[..., Path]
) -> None:
    crew, (a, b, c) = prepare(str(write_crew(CREW))), servers
    with of(a, b) as client:
        client.submit(crew)
    with of(b, a) as client, pytest.raises(UsageError, match="in the same order everywhere"):
        client.runs()
    with pytest.raises(UsageError, match="is server 1 of 2, and is named alone"):
        Client(a.url)
    with Client(c.url) as alone:
        alone.submit(crew)
    with of(a, b, c) as client, pytest.raises(UsageError, match="has runs of its own: name it as the first"):
        client.runs()
    again = f"unix://{a.folder}/../{a.folder.name}/s.sock"
    with Client(f"{a.url},{again}") as client, pytest.raises(UsageError, match="is server 1 of 2"):
        client.runs()


def test_with_a_server_down_its_runs_are_named_unreachable_and_the_others_go_on(
    servers: list[RedisServer], write_crew: Callable[..., Path]
) -> None:
    crew = prepare(str(write_crew(CREW)))
    with of(*servers) as client:
        there = [client.at(place).submit(crew, new_id=lambda at=place: client.new_id(at)).id for place in range(3)]
        servers[0].kill()
        for run_id in there[1:]:
            assert client.run(run_id).id == run_id
        with pytest.raises(StoreUnreachable, match=f"run {there[0]} may be there: Redis at .* cannot be reached"):
            client.run(there[0])
        new = [client.submit(crew).id for _ in range(4)]
        keys = [f"key {number}" for number in range(30)]
        taken = []
        for key in keys:
            try:
                taken.append(client.submit(crew, id=key).id)
            except StoreUnreachable:  # done before, perhaps: not twice
                continue
        assert 10 < len(taken) < 28  # those of the others are
        listed = client.runs()
        assert {run.id for run in listed} == {*there[1:], *new, *taken}
        assert len(client.away) == 1
        servers[0].start()
        assert client.run(there[0]).id == there[0]


def test_a_batch_is_followed_to_its_end_and_by_who_waits_only_so_long(
    servers: list[RedisServer], write_crew: Callable[..., Path]
) -> None:
    with of(*servers) as client:
        batch = client.submit_many(write_crew(CREW), [{} for _ in range(12)])
        codes: list[int] = []
        printed: list[str] = []

        def follow(timeout: float | None = None, of: object = None) -> int:
            one = batch if of is None else client.batch(batch.id)
            return batches.follow(one, "b", 12, printed.append, False, "again", timeout=timeout)

        following = threading.Thread(target=lambda: codes.append(follow()))
        following.start()
        eventually(lambda: batch.active == 12, why="all are submitted")
        # Nothing works: who waits is told so in time, and who submits goes on
        assert (follow(0, client), printed) == (124, [])
        assert client.batch(batch.id).cancel() == 12
        following.join(30)
        # Then all were cancelled, and results that are there are not waited for
        assert (codes, batch.stopped) == ([3], False)
        assert sorted(json.loads(line)["line"] for line in printed) == list(range(1, 13))
        printed.clear()
        assert (follow(0, client), len(printed)) == (3, 12)


@pytest.mark.parametrize("away", [0, 1])
def test_a_batch_begins_while_any_server_is_away_says_so_and_goes_on_there_when_it_is_back(
    away: int, servers: list[RedisServer], write_crew: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    with of(*servers) as client:
        assert client.runs() == []  # each server knows its place now: until then all have to be there
        servers[away].kill()
        batch = client.submit_many(write_crew(CREW), [{} for _ in range(60)])
        following = threading.Thread(target=lambda: list(batch), daemon=True)
        following.start()

        def begun() -> list[int]:
            return [len(client.at(place).store.runs.newest(100)) for place in range(3) if place != away]

        eventually(lambda: any("waiting for the store" in line for line in caplog.messages), why="it says so")
        eventually(lambda: batch.begun == sum(begun()) > 10, why="the others have theirs")
        servers[away].start()
        eventually(lambda: batch.begun == 60, why="the third has its runs, too")
        assert client.batch(batch.id).cancel() == 60
        following.join(30)
        waits, back = caplog.messages
        assert waits.startswith(f"waiting for the store: Redis at {servers[away].url} cannot be reached: ")
        assert back.startswith("the store is back after ")


def test_who_waits_only_so_long_does_not_wait_for_a_server_that_is_away(
    servers: list[RedisServer], write_crew: Callable[..., Path]
) -> None:
    with of(*servers) as client:
        run = client.submit(prepare(str(write_crew(CREW))))
        (place,) = (at for at in range(3) if client.at(at).store.runs.existing([run.id]))
        batch = client.submit_many(write_crew(CREW), [{} for _ in range(12)])
        following = threading.Thread(target=lambda: list(batch), daemon=True)
        following.start()
        eventually(lambda: batch.active == 12, why="all are submitted")
        waiting = client.batch(batch.id)
        seen: list[Any] = []

        def wait() -> None:
            seen.append(batches.follow(waiting, "b", 12, seen.append, False, "again", timeout=8))

        waits = threading.Thread(target=wait, daemon=True)
        waits.start()
        eventually(lambda: waiting.active == 12, why="it waits for all")
        servers[place].kill()
        with pytest.raises(TimeoutError, match=f"run {run.id} is still running after 1 s"):
            run.wait(1)
        with pytest.raises(TimeoutError):
            run.wait(1, on_event=seen.append)
        waits.join(25)
        assert seen == [124]
        batch.stop()
        following.join(25)
        assert not following.is_alive()


def test_the_first_runs_that_failed_are_the_first_of_all_servers() -> None:
    def failed(number: int) -> RunRecord:
        return RunRecord(f"r-{number:012x}", RunStatus.failed, "crew", "main", 1, 2, "bad", "runner", "", "", {})

    state = BatchState("b-000000000000")
    for place in range(2):
        numbers = range(1 + place, 61, 2)
        found = [(failed(number), []) for number in numbers]
        state.add([(number, run.id) for number, (run, _) in zip(numbers, found, strict=True)], found)
    assert [number for number, _ in state.listed] == list(range(1, 21))
