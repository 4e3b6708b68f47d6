"""Checks of the scripts that keep states that no other test comes by, as in `test_each_check`."""

from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from runner.core.errors import StoreUnreachable
from runner.providers import RedisProvider
from runner.providers.redis import scripts

from .calls import contents

HOME = "runner:{states:p}"


def put(redis: Redis, name: str, **how: Any) -> Any:
    """Store a state, called so, with its name as digest and entry."""
    asked = {"branch": "main", "parent": "", "digest": name, "size": 2, "entry": name, "base": 0, "base_digest": ""}
    return scripts.load("put_state")(redis, home=HOME, id=name, **{**asked, "lease": 0, **how})


@pytest.fixture
def location(server: Any) -> str:
    return f"{server.url}?prefix=p"


def test_a_run_that_is_over_stands_on_no_checkpoint(redis: Redis, location: str) -> None:
    one = RedisProvider()
    own = one.checkpoint("{}", location)
    one.hold(own)
    assert redis.zrange(f"{HOME}:held", 0, -1) == [one.extract_id(own)]
    one.release(own)
    assert not redis.exists(f"{HOME}:held")


@pytest.mark.parametrize("part", ["entries", "branches"])
def test_what_is_pruned_is_looked_at_before_it_goes(redis: Redis, location: str, part: str) -> None:
    one = RedisProvider()
    one.checkpoint("{}", location)
    redis.rename(f"{HOME}:{part}", "aside")
    redis.set(f"{HOME}:{part}", "somebody else's")
    before = contents(redis)
    with pytest.raises(StoreUnreachable, match="WRONGTYPE"):
        one.prune(location, 0)
    assert contents(redis) == before
    redis.rename("aside", f"{HOME}:{part}")
    assert one.prune(location, 0) == 1


def test_a_line_that_leaves_where_another_run_stands_is_pruned_up_to_there(redis: Redis, location: str) -> None:
    one, line = RedisProvider(), list[str]()
    for i in range(3):
        parent = one.extract_id(line[-1]) if line else None
        line.append(one.checkpoint(f'{{"i": {i}}}', location, parent_id=parent))
    one.hold(line[0])
    assert one.prune(location, 1, head=one.extract_id(line[2])) == 1
    assert [info.location for info in one.checkpoints(location)] == [line[0], line[2]]
    one.release(line[0])


def test_a_state_stands_on_its_parent_as_its_writer_knew_it(redis: Redis) -> None:
    assert [put(redis, name) for name in ("a0", "b0")] == [["stored", "1"], ["stored", "2"]]
    on_a = {"parent": "a0", "base": 1, "base_digest": "a0"}
    before = contents(redis)
    for other in ({"parent": "none"}, {"base": 2}, {"base_digest": "b0"}):
        assert put(redis, "c0", **{**on_a, **other}) == ["missing"]
    assert contents(redis) == before
    assert put(redis, "c0", **on_a) == ["stored", "3"]
    redis.hdel(f"{HOME}:chains:0", "1")  # lost, with the entry
    assert put(redis, "d0", **on_a) == ["missing"]


def test_a_state_is_stood_on_from_the_first_where_it_is_so_asked(redis: Redis) -> None:
    put(redis, "a0")
    assert not redis.exists(f"{HOME}:held")
    redis.set(f"{HOME}:held", "somebody else's")
    before = contents(redis)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        put(redis, "b0", lease=5000)
    assert contents(redis) == before
    redis.delete(f"{HOME}:held")
    put(redis, "b0", lease=5000)
    put(redis, "c0")
    assert redis.zrange(f"{HOME}:held", 0, -1) == ["b0"]


def test_a_long_line_makes_nobody_wait(redis: Redis) -> None:
    put(redis, "a0")
    put(redis, "b0", parent="a0", base=1, base_digest="a0")
    read = scripts.load("read_state")
    assert read(redis, home=HOME, id="b0", limit=1, **{"from": ""})[1:] == ["1", "b0"]
    assert read(redis, home=HOME, id="b0", limit=1, **{"from": "1"})[1:] == ["0", "a0"]
    assert read(redis, home=HOME, id="b0", limit=100, **{"from": ""})[1:] == ["0", "b0", "a0"]


def test_what_is_damaged_below_does_not_keep_from_pruning(redis: Redis) -> None:
    """An entry that is not there any more holds nothing."""
    base: dict[str, Any] = {"base": 0, "base_digest": ""}
    for number, name in enumerate(("a0", "b0", "c0"), 1):
        put(redis, name, **base)
        base = {"parent": name, "base": number, "base_digest": name}
    redis.hdel(f"{HOME}:chains:0", "1")
    assert scripts.load("prune_states")(redis, home=HOME, branch="main", max_keep=1, head="c0") == 2


def test_a_checkpoint_of_which_only_the_name_is_left_is_not_whole(redis: Redis) -> None:
    put(redis, "a0")
    redis.hdel(f"{HOME}:lineage", "a0")
    assert scripts.load("list_states")(redis, home=HOME, branch="main") == ["a0", "", 0]
