"""A script that fails has changed nothing: whatever its arguments are, its keys hold, and the server refuses."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AskError, NoScriptError, RedisError, ResponseError, TryAgainError

from runner.providers.redis import scripts
from runner.providers.redis.cluster import NOT_HERE, slot_of
from runner.providers.redis.keys import patterns
from runner.providers.redis.outages import forbidden, not_now
from runner.testing import RedisServer, eventually

from ...support.cluster import RedisCluster
from .calls import Beside, Call, contents, history, key_of, read, recorded, write
from .conftest import EXAMPLES
from .driver import QUEUE, Driver, plan_of
from .observed import TEST_KEY

BROKEN = [
    b"", b"text", b"1e18", b"9" * 25, b"-1", b"1.5", b"nan", b"inf", b"[", b"{}", b"[]", b"[[]]", b"[1]", b'{"a": []}',
    b'[{"task": 1}]', b'[{"task":"a","needs":"x","context":"[","timeout":"1e99"}]', b'[["model","A","gpt"]]',
    b'[["model","A","gpt",1.5,0]]', b'[["model","A","gpt",1e300,NaN]]', b'{"p0": "1 ["}', b'{"keep": "1e18"}',
    b'["odd"]', b'{"version": "", "put": {}}', b'[["a", 1]]', b"null", b"\xff\xfe", b"[" * 2000,
]  # fmt: skip
"""In the place of an argument: nothing, text, other numbers, JSON of another shape, what is no JSON or no UTF-8."""

WRITES = "rdb_changes_since_last_save"
"""What the server counts, in its own words. Of servers that save nothing it is all that they ever wrote."""

COUNTED = f"return tonumber(redis.call('INFO', 'persistence'):match('{WRITES}:(%d+)'))"  #: a number is read at once

FEW = 2 if EXAMPLES else 16  #: a script's calls but the first are made with one in so many of what may be wrong

CALLS: list[Call] = []

Command = tuple[bytes | str | int, ...]


@pytest.fixture
def raw(server: RedisServer) -> Any:
    """A client that takes values as they are."""
    with Redis.from_url(server.url) as one:
        yield one


@pytest.fixture
def calls(driver: Driver, raw: Redis, clock: Any, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Each script as it was called in the history: once for each kind of arguments."""
    if not CALLS:
        with recorded(raw, monkeypatch) as found:
            history(driver, clock, f"{server.url}?prefix=all")
        kinds = {(call.script.name, *(bool(value) for value in call.slots.values())): call for call in found}
        seen: dict[str, int] = {}
        for call in kinds.values():
            seen[call.script.name] = seen.get(call.script.name, 0) + 1
            CALLS.append(call)
    return CALLS


def changes_nothing(
    call: Call, raw: Redis, what: str, *, prepare: Sequence[Command] = (), settle: Sequence[Command] = (), **others: Any
) -> RedisError | None:
    """Why the call failed, if it did; then it must have written nothing, not even what was there.

    ``prepare`` and ``settle`` are sent with it, around it.
    """
    pipe = raw.pipeline(transaction=False)
    for command in prepare:
        pipe.execute_command(*command)
    pipe.eval(COUNTED, 0)
    call.again(pipe, **others)
    pipe.eval(COUNTED, 0)
    for command in settle:
        pipe.execute_command(*command)
    *prepared, before, error, after = (answers := pipe.execute(raise_on_error=False))[: len(prepare) + 3]
    failed = [one for one in (*prepared, before, after, *answers[len(prepare) + 3 :]) if isinstance(one, Exception)]
    assert not failed
    if not isinstance(error, RedisError):
        return None
    assert not isinstance(error, NoScriptError)
    assert after == before, f"{call.script.name}.lua with {what} did a half: {error}"
    return error


def failure(call: Call, redis: Redis, **others: Any) -> RedisError | None:
    """What the server says against the call."""
    try:
        call.again(redis, **others)
    except RedisError as error:
        return error
    return None


def test_the_server_counts_each_write(raw: Redis) -> None:
    for change in (
        lambda: raw.set("a", 1),
        lambda: raw.set("a", 1),  # though it is the same
        lambda: raw.expire("a", 100),
        lambda: raw.hset("h", "x", "1"),
        lambda: raw.xadd("s", {"a": 1}),
        lambda: raw.rename("s", "t"),
        lambda: raw.eval("redis.call('SET', KEYS[1], 1) return redis.error_reply('and fails')", 1, "a"),
    ):
        before = raw.info("persistence")[WRITES]
        with suppress(ResponseError):
            change()
        assert raw.info("persistence")[WRITES] == before + 1
    raw.flushall()


def test_the_history_calls_every_script(calls: list[Call]) -> None:
    assert {call.script.name for call in calls} == set(scripts.names())


@pytest.mark.parametrize("name", scripts.names())
def test_every_argument_has_a_type(name: str) -> None:
    source = scripts._FOLDER.joinpath(f"{name}.lua").read_text("utf-8")
    (line,) = [line for line in source.splitlines() if line.startswith("-- ARGV ")]
    assert all(":" in slot for slot in line.split()[2:])


@pytest.mark.parametrize("name", scripts.names())
def test_with_a_broken_argument(calls: list[Call], raw: Redis, name: str) -> None:
    for number, call in enumerate(call for call in calls if call.script.name == name):
        whole = Beside(raw, call.before)
        raw.script_load(call.script.text)
        # Its other calls differ in what is given: each has some of the values, and what is checked is so in the first.
        values = BROKEN[number % FEW :: FEW] if number else BROKEN
        anew: Sequence[Command] = ()  # what has all as it was is sent with the next call
        for slot, kind in zip(call.script.argv, call.script.types, strict=True):
            refused, given = 0, call.slots[slot]
            if kind == "rest":  # texts of any kind, of which none may miss, and none be one too many
                for other in (given[:-1], given[1:], given[:-2], [*given, ""], [*given, "a", "b"]):
                    if other != given:
                        assert changes_nothing(call, raw, slot, prepare=anew, **{slot: other})
                        anew = ()
                continue
            for value in values:
                anew = (
                    ()
                    if changes_nothing(call, raw, f"{slot}={value[:40]!r}", prepare=anew, **{slot: value})
                    else [whole.anew]
                )
                refused += not anew
            assert kind == "text" or number or refused > 10, f"{slot} is not checked"
        whole.write()
        some = call.script.arguments(call.slots)
        before = raw.info("persistence")[WRITES]
        for missing in range(1, len(some) - len(call.script.keys)):
            with pytest.raises(
                ResponseError, match=r"what it was given is not complete|steps is not a name and a result"
            ):
                raw.execute_command("EVALSHA", call.script.sha, *some[:-missing])
        assert raw.info("persistence")[WRITES] == before


@pytest.mark.parametrize("name", scripts.names())
@pytest.mark.parametrize("how", ["of another type", "gone"])
def test_with_a_key_that_is(calls: list[Call], raw: Redis, name: str, how: str) -> None:
    for number, call in enumerate(call for call in calls if call.script.name == name):
        whole = Beside(raw, call.before)
        call.again(raw)
        touched = sorted({*call.before, *map(bytes, raw.keys())} - {TEST_KEY.encode()})
        whole.write()
        kinds, anew = dict(zip(touched, _types(raw, touched), strict=True)), list[Command]()
        for key in touched[number % FEW :: FEW] if number else touched:  # its other calls find the same keys, mostly
            broken: list[Command] = [("DEL", key)]
            if how != "gone":
                broken += [("HSET", key, "a", "1") if kinds[key] == b"string" else ("SET", key, "somebody else's")]
            refused = changes_nothing(call, raw, f"{key!r} {how}", prepare=[*anew, *broken])
            anew = [key_of(call.before, key) if refused else whole.anew]


def _types(redis: Redis, names: Sequence[bytes]) -> list[bytes]:
    pipe = redis.pipeline(transaction=False)
    for name in names:
        pipe.type(name)
    return pipe.execute()


@pytest.mark.parametrize("name", scripts.names())
def test_whose_user_may_not_do_one_of_its_commands(
    calls: list[Call], raw: Redis, server: RedisServer, name: str
) -> None:
    """Without any of the commands that it needs it is refused before its first write, and the refusal passes."""
    raw.acl_setuser(
        "worker", enabled=True, passwords=["+pw"], keys=["?*"], categories=["+@all"]
    )  # of which keys is looked at
    with Redis.from_url(server.url, username="worker", password="pw") as worker:
        for call in (call for call in calls if call.script.name == name):
            whole = Beside(raw, call.before)
            raw.script_load(call.script.text)
            for command in used(call, raw):
                whole.write()
                raw.execute_command("ACL", "SETUSER", "worker", f"-{command}")
                error = changes_nothing(call, worker, f"no right to {command}")
                raw.execute_command("ACL", "SETUSER", "worker", f"+{command}")
                assert command.upper() in call.script.commands
                assert error is not None, f"{command} was needed"
                assert forbidden(not_now(error)), error
                assert command in str(error).lower()
    raw.acl_deluser("worker")


@pytest.mark.parametrize("name", scripts.names())
def test_whose_user_may_not_use_all_of_its_keys(calls: list[Call], raw: Redis, server: RedisServer, name: str) -> None:
    """Where keys of a kind are missing in the access list, or may only be read, or written by all but one command, it
    is refused before its first write, or does not need them; and the refusal passes."""

    def allow(*rules: Any) -> None:
        raw.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">pw", *rules)

    with Redis.from_url(server.url, username="worker", password="pw") as worker:
        for number, call in enumerate(call for call in calls if call.script.name == name):
            whole = Beside(raw, call.before)
            done = executed(call, raw)
            declared = {str(call.slots[slot]).encode() for slot in call.script.keys}
            kinds = sorted({kind_of(key) for _, key in done if key not in declared})
            for kind in kinds[number % FEW :: FEW] if number else kinds:
                theirs = {key for _, key in done if kind_of(key) == kind} - declared
                others = [b"~%b" % key for key in sorted({key for _, key in done} - theirs | declared)]
                beside = b"%b " + b" ".join(others) + b")"
                for rules in (
                    ("+@all", *others),
                    ("+@all", *others, *(b"%%R~%b" % key for key in theirs)),
                    ("+@all", "%R~*", beside % b"(+@all"),
                    *(
                        ("+@all", "~*", f"-{command}", beside % f"(+{command}".encode())
                        for command in sorted({command for command, key in done if key in theirs} - scripts._READS)
                    ),
                ):
                    whole.write()
                    allow(*rules)
                    if error := changes_nothing(call, worker, f"{rules}"):
                        assert forbidden(not_now(error)), error
                        allow("+@all", "~runner:*", f"~{QUEUE}")
                        assert failure(call, worker) is None
    raw.acl_deluser("worker")


def test_whose_user_may_not_write_to_its_queue(calls: list[Call], raw: Redis, server: RedisServer) -> None:
    """Queues have names of their own: who may use all other keys is told which one is missing."""
    told = set()
    with Redis.from_url(server.url, username="worker", password="pw") as worker:
        for rights in ([], [f"%R~{QUEUE}"]):
            raw.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">pw", "+@all", "~runner:*", *rights)
            for call in calls:
                write(raw, call.before)
                raw.script_load(call.script.text)
                error = changes_nothing(call, worker, f"{rights}")
                assert error is None or forbidden(not_now(error)), error
                if error is not None and rights:
                    assert f"'lpush' command on all keys {QUEUE} " in str(error) or call.script.name == "take", error
                    told.add(call.script.name)
    assert told >= {"answer", "create_run", "create_runs", "fork", "release", "resume", "return_job"}
    raw.acl_deluser("worker")


def test_a_commit_whose_user_may_not_write_to_the_queue_of_what_follows(
    driver: Driver, raw: Redis, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.submit(plan_of("a", "b: a"))
    claim = driver.take("a")["a"]
    with recorded(raw, monkeypatch) as found:
        driver.commit(claim)
    (call,) = [one for one in found if one.script.name == "commit"]
    write(raw, call.before)
    raw.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">pw", "+@all", "~runner:*", f"%R~{QUEUE}")
    with Redis.from_url(server.url, username="worker", password="pw") as worker:
        assert f"'lpush' command on all keys {QUEUE} " in str(changes_nothing(call, worker, "its queue"))
        raw.execute_command("ACL", "SETUSER", "worker", f"~{QUEUE}")
        assert (call.again(worker)[0], raw.llen(QUEUE)) == (b"committed", 1)
    raw.acl_deluser("worker")


def executed(call: Call, raw: Redis) -> set[tuple[str, bytes]]:
    """The commands that a call of a script calls, each with a key."""
    found = set()
    with raw.monitor() as monitor:
        call.again(raw)
        raw.ping()
        for one in monitor.listen():
            command, *arguments = one["command"].split(" ")
            if command == "PING":
                return found
            if one["client_type"] == "lua":
                many = {"COPY": 2, "RENAME": 2, "DEL": None, "EXISTS": None, "MGET": None}.get(command, 1)
                found.update((command, key.encode()) for key in arguments[:many])
    raise AssertionError("the server said nothing more")


def kind_of(key: bytes) -> str:
    """What a key is, by the name of its template."""
    return next((name for name, one in patterns().items() if one.fullmatch(key.decode())), "queue")


def used(call: Call, redis: Redis) -> list[str]:
    """The commands that a call of a script calls."""
    redis.config_resetstat()
    call.again(redis)
    ours = {"evalsha", "config|resetstat", "info"}
    return sorted({name.removeprefix("cmdstat_") for name in redis.info("commandstats")} - ours)


def is_full(redis: Redis) -> None:
    redis.config_set("maxmemory", 1)


def has_no_replica(redis: Redis) -> None:
    redis.config_set("min-replicas-to-write", 1)


def is_a_replica(redis: Redis) -> None:
    redis.replicaof("127.0.0.1", 1)


def cannot_save(redis: Redis) -> None:
    """The file that it would replace is a folder."""
    redis.config_set("save", "3600 1")
    Path(redis.config_get("dir")["dir"], redis.config_get("dbfilename")["dbfilename"]).mkdir(exist_ok=True)
    with suppress(ResponseError):
        redis.bgsave()
    eventually(lambda: redis.info("persistence")["rdb_last_bgsave_status"] == "err")


def is_well_again(redis: Redis) -> None:
    for setting in ("maxmemory", "min-replicas-to-write"):
        redis.config_set(setting, 0)
    redis.config_set("save", "")
    redis.replicaof("NO", "ONE")


REFUSALS = {"OOM": is_full, "NOREPLICAS": has_no_replica, "READONLY": is_a_replica, "MISCONF": cannot_save}


def test_on_a_server_that_refuses(calls: list[Call], own_server: RedisServer) -> None:
    """A script is refused at its first write, or it comes to its end: a server does not refuse in the middle."""
    refused: dict[str, set[str]] = {error: set() for error in REFUSALS}
    with Redis.from_url(own_server.url) as redis:
        for call in calls:
            beside = Beside(redis, call.before)
            call.again(redis)
            whole = done(redis)
            for error, refuses in REFUSALS.items():
                beside.write()
                refuses(redis)
                before = redis.eval(COUNTED, 0)
                if (why := failure(call, redis)) is None:
                    assert done(redis) == whole, f"{call.script.name}.lua did a half"
                else:
                    assert error in f"{type(why).__name__} {why}".upper().replace("OUTOFMEMORY", "OOM")
                    assert redis.eval(COUNTED, 0) == before, f"{call.script.name}.lua did a half"
                    refused[error].add(call.script.name)
                is_well_again(redis)
    needed = {"claim", "commit", "create_run", "fork", "record_step", "begin_step", "fail", "put_state"}
    assert {error: needed - names for error, names in refused.items()} == {error: set() for error in REFUSALS}


def test_while_a_slot_moves_to_another_node(calls: list[Call], tmp_path: Path) -> None:
    """A script fails where one of its keys has gone ahead, or would be new, and says so: then it is asked again."""
    with RedisCluster(tmp_path, masters=1, spare=1) as cluster, Redis(port=cluster.ports[0]) as redis:
        names = {key for call in calls for key in call.before}
        slots = {slot_of(found[1].decode()) for key in names if (found := re.search(rb"\{(.+?)\}", key))}
        there, waited, seen = cluster.id_of(1), set[str](), set[str]()
        moving: list[Command] = [("CLUSTER", "SETSLOT", slot, "MIGRATING", there) for slot in slots]
        settled: list[Command] = [("CLUSTER", "SETSLOT", slot, "STABLE") for slot in slots]
        for number, call in enumerate(calls):
            write(redis, call.before)
            call.again(redis)
            redis.script_load(call.script.text)
            write(redis, call.before)
            # Its other calls find the same keys, mostly.
            few = 2 * FEW if call.script.name in seen else 2
            seen.add(call.script.name)
            touched = sorted({*call.before, *read(redis)} - {TEST_KEY.encode()})
            for gone in [None, *touched[number % few :: few]]:
                why = changes_nothing(
                    call,
                    redis,
                    f"{gone!r} gone",
                    prepare=[*([("DEL", gone)] if gone is not None else []), *moving],
                    settle=settled,
                )
                if why is None:
                    write(redis, call.before)
                    continue
                assert isinstance(why, AskError | TryAgainError) or NOT_HERE in str(why), why
                waited.add(call.script.name)
                if gone is not None:
                    redis.execute_command(*key_of(call.before, gone))
        with_homes = {name for name in scripts.names() if "home" in scripts.load(name).keys}
        assert waited >= {*with_homes, "record_step", "append_event", "beat", "mark", "note"}


def done(redis: Redis) -> dict[bytes, Any]:
    """All that is stored, but for the times in the events."""
    return {
        name: redis.xlen(name) if name.endswith((b":events", b":ended")) else value
        for name, value in contents(redis).items()
    }
