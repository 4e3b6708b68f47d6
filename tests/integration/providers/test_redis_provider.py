"""States in Redis: what they cost, what pruning leaves, what is never shown, and what happens when Redis is away."""

import contextlib
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from runner.core.errors import StoreUnreachable, UsageError
from runner.events import load_event
from runner.events.record import EventRecord
from runner.providers import BaseProvider, JsonProvider, RedisProvider, SqliteProvider, detect_provider
from runner.providers.redis import deltas, locations, provider, scripts
from runner.providers.redis.deltas import State

from ...support.interpreters import ran
from ...support.soak import in_soak

HOME = "runner:{states:p}"


@pytest.fixture
def location(server: Any) -> str:
    return f"{server.url}?prefix=p"


def memory(redis: Redis) -> int:
    return sum(redis.memory_usage(key, samples=0) for key in redis.scan_iter("*"))


# -- what it costs


def states(tasks: int, events: int, size: int = 1024) -> Iterator[str]:
    """A crew's states, one for each task that is done: the outputs are random, as the ids are."""
    chance = random.Random(tasks)
    record = EventRecord()
    previous = None

    def digits(n: int) -> str:
        return f"{chance.getrandbits(4 * n):0{n}x}"

    def emit(kind: str, **fields: Any) -> str:
        nonlocal previous
        event = load_event({"type": kind, "event_id": "-".join(map(digits, (8, 4, 4, 4, 12))),
                            "previous_event_id": previous, "emission_sequence": len(record) + 1, **fields})  # fmt: skip
        record.add(event)
        previous = event.event_id
        return previous

    crew = {"entity_type": "crew", "name": "c", "process": "sequential", "checkpoint_inputs": {"topic": "bees"}}
    done = [
        {"key": f"t{i}", "name": f"t{i}", "description": f"Write part {i} about {{topic}}.", "context": None,
         "id": "-".join(map(digits, (8, 4, 4, 4, 12)))}
        for i in range(tasks)
    ]  # fmt: skip
    kickoff = emit("crew_kickoff_started", crew_name="c")
    for i, task in enumerate(done):
        names = {"task_id": task["id"], "task_name": f"t{i}"}
        started = emit("task_started", parent_event_id=kickoff, **names)
        for kind in ("agent_execution_started", "llm_call_started", "llm_call_completed")[: events - 2]:
            emit(kind, parent_event_id=started, agent_role="writer", **names)
        emit("task_completed", parent_event_id=kickoff, started_event_id=started, **names)
        done[i] = {**task, "output": {"raw": digits(size)}}
        state = {"crewai_version": "0.1.0", "branch": "main", "entities": [{**crew, "tasks": done}]}
        yield json.dumps({**state, "event_record": record.model_dump(mode="json"), "trigger": "task_completed"})


@pytest.mark.parametrize(("events", "most"), [(2, 1.3), (5, 1.5)])
def test_a_hundred_tasks_of_1_kb_cost_less_than_one_and_a_half_times_their_outputs(
    redis: Redis, location: str, events: int, most: float
) -> None:
    one, parent, written = RedisProvider(), None, {}
    for state in states(100, events):
        own = one.checkpoint(state, location, parent_id=parent)
        parent = one.extract_id(own)
        written[own] = state
    assert memory(redis) < most * 100 * 1024
    for own, state in [*written.items()][::9]:
        assert one.from_checkpoint(own) == state
    assert one.prune(location, 0) == 100
    assert redis.keys() == []


def test_files_and_sqlite_cost_what_the_states_do(tmp_path: Path) -> None:
    every = list(states(50, 2))
    for one, location in ((JsonProvider(), tmp_path / "files"), (SqliteProvider(), tmp_path / "c.db")):
        parent = None
        for state in every:
            parent = one.extract_id(one.checkpoint(state, str(location), parent_id=parent))
        stored = sum(path.stat().st_size for path in [location, *location.rglob("*")] if path.is_file())
        assert stored < 1.1 * sum(map(len, every))


def test_a_state_that_is_replaced_again_and_again_takes_no_more_room(redis: Redis, location: str) -> None:
    """What is pruned goes, though later states were written against it."""
    chance = random.Random(1)
    one, parent = RedisProvider(), None
    most = 0
    for i in range(60):
        state = json.dumps({"i": i, "kept": "the same", "numbers": [chance.random() for _ in range(2000)]})
        parent = one.extract_id(one.checkpoint(state, location, parent_id=parent))
        one.prune(location, 3, head=parent)
        most = max(most, memory(redis))
        alone = len(deltas.encode(deltas.split(state), State())[0])
    assert most < 8 * alone
    assert json.loads(one.from_checkpoint(one.latest(location).location)) == json.loads(state)


def test_a_state_that_does_not_change_costs_next_to_nothing(redis: Redis, location: str) -> None:
    one = RedisProvider()
    state = next(states(100, 2))
    parent = one.extract_id(one.checkpoint(state, location))
    before = memory(redis)
    for _ in range(50):
        parent = one.extract_id(one.checkpoint(state, location, parent_id=parent))
    assert memory(redis) - before < 50 * 250


# -- pruning


def check_holders(redis: Redis) -> None:
    """Each entry is there as long as something holds it, and is told how much does."""
    lineage = {k: v.split("|") for k, v in redis.hgetall(f"{HOME}:lineage").items()}
    entries = set(redis.hkeys(f"{HOME}:entries"))
    chains: dict[str, tuple[int, str]] = {}
    for key in redis.scan_iter(f"{HOME}:chains:*"):
        for number, text in redis.hgetall(key).items():
            assert int(number) // 100 == int(key.rpartition(":")[2])
            holders, base = text.split()
            chains[number] = (int(holders), base)
    assert entries == set(chains)
    holders = dict.fromkeys(entries, 0)
    for number, *_ in lineage.values():
        holders[number] += 1
    for _, base in chains.values():
        if base != "0":
            holders[base] += 1
    assert holders == {number: count for number, (count, _) in chains.items()}
    assert all(holders.values())
    listed = {}
    for branch in redis.smembers(f"{HOME}:branches"):
        listed.update(dict.fromkeys(redis.zrange(f"{HOME}:branch:{branch}:checkpoints", 0, -1), branch))
    assert listed == {checkpoint: fields[5] for checkpoint, fields in lineage.items()}


@pytest.mark.parametrize("seed", [0, 1, *in_soak(*range(2, 8))])
def test_whatever_is_written_and_pruned_it_is_as_with_sqlite(
    redis: Redis, location: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    other = str(tmp_path / "c.db")
    pairs: list[tuple[BaseProvider, str]] = [(RedisProvider(), location), (SqliteProvider(), other)]
    alive: list[tuple[str, str, str]] = []  # the same checkpoint in both, and its branch
    states: dict[str, str] = {}
    for step in range(120):
        branch = chance.choice(["main", "main", "fork/a", "fork/b"])
        what = chance.random()
        if what < 0.7:
            parents = chance.choice(alive[-4:] or [None]) if chance.random() < 0.9 else None
            if parents and chance.random() < 0.7:
                branch = parents[2]
            data = json.dumps({"step": step, "list": [f"{step} {i}" * 20 for i in range(chance.randrange(30))]})
            own = [
                one.extract_id(one.checkpoint(data, where, parent_id=parents[i] if parents else None, branch=branch))
                for i, (one, where) in enumerate(pairs)
            ]
            states[own[0]] = data
            alive.append((own[0], own[1], branch))
        else:
            keep = chance.choice([0, 1, 2, 3, 5])
            head = chance.choice(alive) if alive and what < 0.9 else None
            if head:
                branch = head[2]
            removed = [
                one.prune(where, keep, branch=branch, head=head[i] if head else None)
                for i, (one, where) in enumerate(pairs)
            ]
            assert removed[0] == removed[1]
        if chance.random() < 0.1:
            provider._recent.clear()  # as if another process went on
        left = [[info.id for info in one.checkpoints(where)] for one, where in pairs]
        alive = [pair for pair in alive if pair[1] in left[1]]
        assert left == [[pair[0] for pair in alive], [pair[1] for pair in alive]]
        check_holders(redis)
    one = pairs[0][0]
    assert {info.id: one.from_checkpoint(info.location) for info in one.checkpoints(location)} == {
        checkpoint: states[checkpoint] for checkpoint, _, _ in alive
    }
    for branch in ("main", "fork/a", "fork/b"):
        one.prune(location, 0, branch=branch)
    assert redis.keys() == []


# -- writing


def test_a_write_asked_twice_is_one_write(redis: Redis, location: str) -> None:
    place = locations.parse_location(location)
    client = provider._client(place.url)
    asked = {"home": place.home, "branch": "main", "parent": "", "size": 2, "entry": b"x", "base": 0, "base_digest": ""}
    asked["lease"] = 0
    put = scripts.load("put_state")
    first = put(client, id="a", digest="0f", **asked)
    assert put(client, id="a", digest="0f", **asked) == first == [b"stored", b"1"]
    assert put(client, id="a", digest="ff", **asked) == [b"taken"]
    assert redis.hlen(f"{HOME}:entries") == 1
    check_holders(redis)


@pytest.mark.parametrize("lost", ["pruned", "flushed", "replaced"])
def test_a_state_whose_parent_is_gone_stands_alone(redis: Redis, location: str, lost: str) -> None:
    one = RedisProvider()
    parent = one.extract_id(one.checkpoint('{"a": [1, 2, 3], "b": {}}', location))
    if lost == "pruned":
        one.prune(location, 0)
    else:
        redis.flushall()
    if lost == "replaced":  # after a failover, say: the number that the parent had is another's now
        one.checkpoint('{"quite": "another"}', location)
    own = one.checkpoint('{"a": [1, 2, 3], "b": {"c": 1}}', location, parent_id=parent)
    assert one.from_checkpoint(own) == '{"a": [1, 2, 3], "b": {"c": 1}}'
    check_holders(redis)


def test_another_process_goes_on_at_the_same_cost(redis: Redis, location: str) -> None:
    one, parent = RedisProvider(), None
    for state in states(20, 2):
        provider._recent.clear()
        parent = one.extract_id(one.checkpoint(state, location, parent_id=parent))
    afresh = memory(redis)
    redis.flushall()
    for state in states(20, 2):
        parent = one.extract_id(one.checkpoint(state, location, parent_id=parent))
    assert afresh < 1.05 * memory(redis)


def test_a_long_line_is_read_in_pages(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, parent = RedisProvider(), None
    for i in range(50):
        own = one.checkpoint(json.dumps({"i": i}), location, parent_id=parent)
        parent = one.extract_id(own)
    monkeypatch.setattr(provider, "_PAGE", 100)
    assert one.from_checkpoint(own) == '{"i": 49}'


def test_a_forked_process_writes_too(location: str) -> None:
    one = RedisProvider()
    parent = one.extract_id(one.checkpoint('{"i": 0}', location))
    pid = os.fork()
    if not pid:
        try:
            one.checkpoint('{"i": 1}', location, parent_id=parent)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert one.from_checkpoint(one.latest(location).location) == '{"i": 1}'


def test_memory_does_not_grow_with_what_was_written(location: str) -> None:
    one = RedisProvider()
    for i in range(40):
        one.checkpoint(json.dumps({"i": i}), location)
    assert len(provider._recent._found) <= 8


# -- locations


@pytest.mark.parametrize(
    ("location", "url", "home", "shown"),
    [
        ("redis://h:1/2?prefix=a", "redis://h:1/2", "a", "redis://h:1/2?prefix=a"),
        ("redis://h", "redis://h", "checkpoints", "redis://h?prefix=checkpoints"),
        ("redis://u:p%40@h:1/2?prefix=a/b", "redis://u:p%40@h:1/2", "a/b", "redis://h:1/2?prefix=a/b"),
        ("redis://:p@x@h/0?prefix=a", "redis://:p@x@h/0", "a", "redis://h/0?prefix=a"),
        ("rediss://h/0?password=s&prefix=a&timeout=3", "rediss://h/0?password=s&timeout=3", "a",
         "rediss://h/0?timeout=3&prefix=a"),
        ("unix://u:p@/s/r.sock?db=3&prefix=a", "unix://u:p@/s/r.sock?db=3", "a", "unix:///s/r.sock?db=3&prefix=a"),
        ("redis://h/0?prefix=%7Bx%7D%23", "redis://h/0", "%7Bx%7D%23", "redis://h/0?prefix=%7Bx%7D%23"),
    ],
)  # fmt: skip
def test_a_location_is_a_url_and_a_prefix(
    location: str, url: str, home: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "_known", {})
    place = locations.parse_location(location)
    assert (place.url, place.home, place.shown) == (url, f"runner:{{states:{home}}}", shown)
    # What is given back can be given again, and then the password is known.
    assert locations.parse_location(place.shown) == place
    assert isinstance(detect_provider(place.shown), RedisProvider)


def test_a_prefix_alone_is_at_the_providers_url_or_at_the_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locations, "_known", {})
    monkeypatch.delenv("RUNNER_REDIS_URL", raising=False)
    assert locations.parse_location("./.checkpoints", "redis://a/1").shown == "redis://a/1?prefix=.checkpoints"
    with pytest.raises(
        UsageError, match=r"No Redis for 'x': give a location like redis://host:6379/0\?prefix=NAME, or"
    ):
        locations.parse_location("x")
    monkeypatch.setenv("RUNNER_REDIS_URL", "redis://:secret@b/2")
    assert locations.parse_location("x").shown == "redis://b/2?prefix=x"
    assert locations.parse_location("x").url == "redis://:secret@b/2"
    monkeypatch.setattr(locations, "_known", {})
    assert locations.parse_location("redis://b/2?prefix=x").url == "redis://:secret@b/2"


def test_the_password_is_used_and_nowhere_to_be_seen(own_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "u", "on", ">s3cret", "~runner:*", "+@all", "-@dangerous")
        admin.execute_command("ACL", "SETUSER", "default", "off")
    one = RedisProvider()
    own = one.checkpoint("{}", own_server.url.replace("unix://", "unix://u:s3cret@") + "?prefix=p")
    assert "s3cret" not in own
    assert one.from_checkpoint(own) == "{}"
    assert one.latest(own.partition("#")[0]).location == own
    # In another process the environment has the password.
    monkeypatch.setattr(locations, "_known", {})
    with pytest.raises(StoreUnreachable, match="cannot store or read checkpoints"):
        one.from_checkpoint(own)
    monkeypatch.setenv("RUNNER_REDIS_URL", own_server.url.replace("unix://", "unix://u:s3cret@"))
    assert one.from_checkpoint(own) == "{}"


def test_an_error_names_the_server_without_its_password(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "PATIENCE", 0)
    one = RedisProvider(url="unix://u:s3cret@/nowhere/r.sock")
    for call in (
        lambda: one.checkpoint("{}", "x"),
        lambda: one.checkpoints("unix://u:s3cret@/nowhere/r.sock?prefix=x"),
    ):
        with pytest.raises(StoreUnreachable) as failed:
            call()
        assert "s3cret" not in str(failed.value)
        assert "unix:///nowhere/r.sock" in str(failed.value)
    assert "s3cret" not in repr(one) + one.model_dump_json() + caplog.text


def test_a_redis_that_is_away_is_waited_for_once(own_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, location = RedisProvider(), f"{own_server.url}?prefix=p"
    own = one.checkpoint("{}", location)
    own_server.kill()
    monkeypatch.setattr(provider, "PATIENCE", 0.3)
    with pytest.raises(StoreUnreachable, match="cannot store or read checkpoints"):
        one.checkpoint("{}", location)
    monkeypatch.setattr(provider, "PATIENCE", 1000)  # a second wait would not end
    for _ in range(20):
        with pytest.raises(StoreUnreachable):
            one.checkpoint("{}", location)
    own_server.start()
    assert one.from_checkpoint(own) == "{}"  # it was on its disk
    one.checkpoint("{}", location, parent_id=one.extract_id(own))
    assert len(one.checkpoints(location)) == 2


# -- entries

texts = st.lists(
    st.sampled_from(['{"a":1},', '"b":[2,3],', "x" * 300, '"k":{"v":null},', "é" * 30, '"', "}", ",", "y" * 700 + ","])
).map("".join)


@given(st.lists(st.one_of(texts, st.text()), min_size=1, max_size=6))
def test_any_text_comes_back_from_its_entries(every: list[str]) -> None:
    written = read = State()
    for text in every:
        parts = deltas.split(text)
        assert "".join(parts) == text
        entry, written = deltas.encode(parts, written)
        read = deltas.decode(entry, read)
        assert read.text == text
        assert (list(read.parts), read.window) == (list(written.parts), written.window)


@given(st.binary(max_size=60), texts)
def test_what_is_no_entry_is_a_value_error(entry: bytes, text: str) -> None:
    base = deltas.encode(deltas.split(text), State())[1]
    with contextlib.suppress(ValueError):
        deltas.decode(entry, base)
    real = deltas.encode(deltas.split(text + '{"n":1},' * 9), base)[0]
    for cut in range(len(real)):
        with pytest.raises(ValueError, match=r"cut off|not an entry"):
            deltas.decode(real[:cut], base)


def test_crewai_like_repetition_costs_little() -> None:
    """The same long text in many places is stored once, however far apart."""
    agent = {"backstory": "".join(random.Random(1).choices("abcdefghij ,.", k=15_000))}
    state, sizes = State(), []
    nodes: list[Any] = []
    for i in range(30):
        nodes += [{"id": i, "agent": agent}, {"id": -i, "agent": agent}]
        entry, state = deltas.encode(deltas.split(json.dumps({"nodes": nodes})), state)
        sizes.append(len(entry))
    assert max(sizes[1:]) < sizes[0] / 10


def test_another_process_needs_only_the_location(server: Any) -> None:
    own = RedisProvider().checkpoint('{"i": 1}', f"{server.url}?prefix=p")
    code = "import sys; from runner.providers import RedisProvider as R; print(R().from_checkpoint(sys.argv[1]))"
    assert ran("-c", code, own) == '{"i": 1}\n'


def test_a_run_that_began_while_redis_was_away_is_in_flight_when_it_is_back(
    own_server: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(provider, "PATIENCE", 0.1)
    monkeypatch.setattr(provider, "LEASE", 0.3)
    monkeypatch.setattr(provider, "_held", provider._Held())
    own, where = RedisProvider(), f"{own_server.url}?prefix=p"
    at = own.checkpoint("{}", where)
    own_server.kill()
    with pytest.raises(StoreUnreachable):
        own.hold(at)
    own_server.start()
    held = f"{HOME}:held"
    with Redis.from_url(own_server.url) as redis:
        eventually(lambda: redis.zcard(held), within=10, why="the lease is taken")
    own.release(at)
