"""A Redis Cluster: what its URLs say, who has a slot, and which tags its partitions get."""

from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError, TimeoutError

from runner import CheckpointConfig, Crew, Task
from runner.core.errors import StoreUnreachable, UsageError
from runner.providers.redis import address, keys, partitions
from runner.providers.redis.cluster import SLOTS, NoSlotOwner, SlotRange, Topology, slot_of, tags_for
from runner.providers.redis.keys import name_of, queue_in, queue_of, served
from runner.providers.redis.locations import parse_location
from runner.providers.redis.partitions import urls_of
from runner.providers.redis.waiting_client import waiting
from runner.testing import RedisServer

from ...support.cluster import RedisCluster

URL = "rediss+cluster://me:p%40ss@a:7000,b?ssl_ca_certs=/ca.pem"
A, B, C = ("a", 7000), ("b", 6379), ("c", 1)


def test_a_url_names_nodes_and_for_a_process_one_partition() -> None:
    found = address.clustered(address.standard(URL.replace("rediss", "valkeys")))
    login = {"username": "me", "password": "p@ss"}
    assert found == address.Clustered((A, B), "", 0, login, {"ssl": True, "ssl_ca_certs": "/ca.pem"})
    one = address.tagged(f"{URL}&partitions=3", "p1.0")
    assert one == f"{URL}&tag=p1.0"
    assert address.tagged(one, "") == URL
    assert urls_of(one) == (one,)  # no node is asked
    assert address.tagged("redis://h/0", "x") == "redis://h/0"
    assert address.identity(one) == "a:7000,b:6379/p1.0"
    for wrong in ("redis+cluster://a/1", "redis+cluster://", "redis+cluster://a?partitions=x", "redis+cluster://a,:1"):
        with pytest.raises(UsageError, match="is not a Redis URL"):
            address.clustered(address.standard(wrong))


def test_queues_carry_the_tag_that_decides_the_slot() -> None:
    assert queue_in(keys.HOME, "a") == "a"  # of a plain server nothing changes
    queues = served(queue_in(keys.home("p1.7"), "a{b}c"))
    assert {slot_of(queue[queue.index("{") + 1 : queue.index("}")]) for queue in queues} == {slot_of("p1.7")}
    assert {name_of(queue) for queue in queues} == {"a{b}c"}
    assert name_of(queue_of("{p0}x")) == "{p0}x"


def test_partitions_are_dealt_to_the_masters_whatever_slots_these_have() -> None:
    ranges = [
        SlotRange(0, 9, A),
        SlotRange(10, 8000, B),
        SlotRange(8001, SLOTS - 2, C),
        SlotRange(SLOTS - 1, SLOTS - 1, A),
    ]
    tags = tags_for(ranges, 4)
    owners = [next(r.master for r in ranges if r.first <= slot_of(tag) <= r.last) for tag in tags]
    assert owners == [A, B, C, A]
    assert tags_for(reversed(ranges)) == tags[:3]


def test_a_node_that_answers_tells_of_others() -> None:
    def ask(node: tuple[str, int]) -> object:
        if node == A:
            raise ConnectionError("down.")
        return [[0, 99, ["b", 6379, "id"], ["c", 1, "id"]], [100, SLOTS - 1, [None, 6379, "id"]]]

    assert Topology([A, B]).owner(99, ask) == B
    one = Topology([B, A])
    assert one.owner(100, ask) == B  # which knows no host of its own: it is the one that was asked
    assert set(one._nodes) == {A, B, C}
    with pytest.raises(NoSlotOwner, match="no node of the cluster has slot 5"):
        one.owner(5, lambda _: [])
    with pytest.raises(NoSlotOwner, match=r"no node of the cluster answers \(a:7000: down\)"):
        Topology([A]).owner(0, ask)


def test_a_node_that_is_frozen_is_one_that_does_not_answer() -> None:
    def ask(node: tuple[str, int]) -> object:
        if node == A:
            raise TimeoutError("Timeout reading from socket")
        return [[0, SLOTS - 1, ["b", 6379, "id"]]]

    for _ in range(20):  # they are asked in any order
        assert Topology([A, B]).owner(0, ask) == B


def test_who_is_second_to_choose_the_partitions_takes_those_of_the_first(tmp_path: Path) -> None:
    with RedisCluster(tmp_path, masters=1) as cluster, waiting(cluster.url) as client:
        found = address.clustered(cluster.url)
        assert found is not None
        execute = client.execute_command

        def first_comes_another(*command: Any, **options: Any) -> Any:
            if command[:2] == ("CLUSTER", "SLOTS"):
                execute("SET", partitions._OF_A_CLUSTER, "p0.7 p1.9")
            return execute(*command, **options)

        client.execute_command = first_comes_another
        assert partitions._tags(client, found) == ["p0.7", "p1.9"]


def test_what_is_no_cluster_says_so(server: RedisServer, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "s", arguments=("--port", "0")), pytest.raises(StoreUnreachable, match="no node"):
        urls_of("redis+cluster://127.0.0.1:1")


def test_states_are_in_the_slot_of_their_location(tmp_path: Path) -> None:
    with RedisCluster(tmp_path, masters=2) as cluster:
        location = f"{cluster.url}?prefix=some/where"
        assert parse_location(location).shown == location
        config = CheckpointConfig(location=location)
        crew = Crew(tasks=[Task(name=name, run=lambda ctx: "done") for name in "abc"], checkpoint=config)
        crew.kickoff()
        stored = []
        for number in range(2):
            with cluster.node(number) as node:
                stored.append(node.keys())
        assert sorted(map(bool, stored)) == [False, True]
        assert all(key.startswith("runner:{states:some/where}") for key in (*stored[0], *stored[1]))
