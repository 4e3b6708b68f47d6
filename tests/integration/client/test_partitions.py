"""Several servers, each a partition: where a run goes, where it is found, and what one server that is down means."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.client.partitions import PartitionedClient, ranked, split
from runner.core.errors import NotFound, StoreUnreachable, UsageError
from runner.testing import RedisServer

CREW = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="write", run=lambda ctx: "done")])
"""
URLS = [f"redis://h{number}:6379/0" for number in range(3)]
IDS = [f"r-{number:012x}" for number in range(3000)]


@pytest.fixture
def servers() -> Iterator[list[RedisServer]]:
    """Three servers, which the test may kill."""
    with RedisServer() as a, RedisServer() as b, RedisServer() as c:
        yield [a, b, c]


def test_runs_spread_evenly_and_a_url_added_takes_only_what_it_gets() -> None:
    before = {run_id: ranked(run_id, URLS)[0] for run_id in IDS}
    assert all(900 < count < 1100 for count in Counter(before.values()).values())
    more = "redis://h3:6379/0"
    after = {run_id: ranked(run_id, [more, *URLS]) for run_id in IDS}
    assert all(now[0] in (before[run_id], more) for run_id, now in after.items())
    assert all(now[1] == before[run_id] for run_id, now in after.items() if now[0] == more)


def test_a_password_and_the_order_do_not_move_a_run() -> None:
    other = ["redis://:secret@h2:6379/0", *URLS[:2]]
    for run_id in IDS[:50]:
        assert ranked(run_id, other)[0].endswith(ranked(run_id, URLS)[0].removeprefix("redis://"))


def test_urls_are_split_at_schemes_and_one_database_is_refused_twice() -> None:
    sentinels = "redis+sentinel://h1,h2,h3/main/0"
    assert split(f"{sentinels},redis://a") == (sentinels, "redis://a")
    with pytest.raises(UsageError, match="one database"):
        split("redis://a,redis://:secret@a:6379/0")


def test_each_run_is_found_wherever_it_is_and_lists_are_merged(
    servers: list[RedisServer], write_crew: Callable[..., Path]
) -> None:
    crew, urls = write_crew(CREW), [server.url for server in servers]
    with PartitionedClient(urls[:2]) as two, PartitionedClient(urls) as three:
        old = [two.submit(crew).id for _ in range(6)] + [two.submit(crew, id=f"key {n}").id for n in range(3)]
        assert [three.run(run_id).id for run_id in old] == old  # also those that would be on the third now
        assert [three.submit(crew, id=f"key {n}").created for n in range(3)] == [False] * 3
        new = three.submit(crew).id
        listed, away = three.runs()
        assert ({run.id for run in listed}, away) == ({*old, new}, [])
        assert [run.created_at for run in listed] == sorted((run.created_at for run in listed), reverse=True)
        assert len(three.runs(limit=4)[0]) == 4
        with pytest.raises(NotFound):
            three.run("r-000000000000")


def test_with_a_server_down_its_runs_are_named_unreachable_and_the_others_go_on(
    servers: list[RedisServer], write_crew: Callable[..., Path]
) -> None:
    crew, urls = write_crew(CREW), [server.url for server in servers]
    with PartitionedClient(urls) as client:
        there = {url: client.at(url).submit(crew, new_id=client.ids_of(url)).id for url in urls}
        servers[0].kill()
        for url in urls[1:]:
            assert client.run(there[url]).id == there[url]
        with pytest.raises(StoreUnreachable, match=f"run {there[urls[0]]} may be there: Redis at .* cannot be reached"):
            client.run(there[urls[0]])
        new = [client.submit(crew).id for _ in range(4)]
        with pytest.raises(StoreUnreachable, match="may be there"):  # done before, perhaps: not twice
            client.submit(crew, id="a key")
        listed, away = client.runs()
        assert {run.id for run in listed} == {there[urls[1]], there[urls[2]], *new}
        assert len(away) == 1
        servers[0].start()
        assert client.run(there[urls[0]]).id == there[urls[0]]
