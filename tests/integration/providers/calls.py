"""A history in which every script is called, and what each call found in the store."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from redis import Redis

from runner.core.jobs import Claim
from runner.core.ledger import AccountKey, Usage
from runner.core.plan import Plan, PlannedTask
from runner.core.plan.expansion import Expansion
from runner.journal.acknowledged_writes import Acknowledged
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.records import HeldClaim, NewRun
from runner.providers.redis import keys, overwritten, scripts, store
from runner.providers.redis.batches import Batches
from runner.providers.redis.forks import create, position
from runner.providers.redis.provider import RedisProvider
from runner.providers.redis.rate_limit import RunPace
from runner.providers.redis.restored_store import LostWrites

from .driver import Driver, plan_of

Keyspace = dict[bytes, tuple[bytes, int]]
"""Every key: its value as DUMP gives it, and its time to live in ms."""


@dataclass(frozen=True)
class Call:
    """A script as it was called, and the keys that were there."""

    script: scripts.LuaScript
    slots: dict[str, Any]
    before: Keyspace

    def again(self, redis: "Redis", **others: Any) -> Any:
        """Call it, with other arguments in the place of some."""
        return self.script(redis, **{**self.slots, **others})


def read(redis: "Redis") -> Keyspace:
    """All that is stored. The client must not decode."""
    names = sorted(redis.keys())
    pipe = redis.pipeline(transaction=False)
    for name in names:
        pipe.dump(name)
        pipe.pttl(name)
    found = pipe.execute()
    # One that expired meanwhile has no value.
    return {name: (value, ttl) for name, value, ttl in zip(names, found[::2], found[1::2], strict=True) if value}


_WHOLE = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "list": ("LRANGE", 0, -1),
    "stream": ("XRANGE", "-", "+"),
}


def contents(redis: "Redis") -> dict[bytes, tuple[Any, bool]]:
    """All that is stored, to compare: its values, and whether it expires, but not when (which passes by itself)."""
    names = sorted(redis.keys())
    pipe = redis.pipeline(transaction=False)
    for name in names:
        pipe.type(name)
        pipe.pttl(name)
    found = pipe.execute()
    for name, kind in zip(names, found[::2], strict=True):
        command, *more = _WHOLE[kind if isinstance(kind, str) else kind.decode()]
        pipe.execute_command(command, name, *more)
    return {name: (value, ttl >= 0) for name, value, ttl in zip(names, pipe.execute(), found[1::2], strict=True)}


def write(redis: "Redis", keyspace: Keyspace) -> None:
    """Have these keys, and no others. What expires does so later than its test ends."""
    pipe = redis.pipeline(transaction=False)
    _restore(pipe, keyspace)
    pipe.execute()


def _restore(pipe: "Redis", keyspace: Keyspace) -> None:
    pipe.flushall()
    for name, (value, ttl) in keyspace.items():
        pipe.restore(name, _later(ttl), value)


class Beside:
    """A keyspace in another database of the server, which copies it from there: to send it takes ten times as long."""

    def __init__(self, redis: "Redis", keyspace: Keyspace) -> None:
        self._copy = redis.register_script(_COPY)
        pipe = redis.pipeline(transaction=False)
        pipe.execute_command("SELECT", 1)
        _restore(pipe, keyspace)
        pipe.execute_command("SELECT", 0)
        pipe.execute()
        self.write()

        self.anew = ("EVALSHA", self._copy.sha, 0)  #: the command that has these keys, and no others

    def write(self) -> None:
        """Have these keys, and no others."""
        self._copy()


_COPY = """
redis.call("FLUSHDB")
redis.call("SELECT", 1)
for _, key in ipairs(redis.call("KEYS", "*")) do redis.call("COPY", key, key, "DB", 0) end
"""


def key_of(keyspace: Keyspace, name: bytes) -> tuple[bytes | str | int, ...]:
    """The command after which this one is as it is there, which may be not at all."""
    if name in keyspace:
        value, ttl = keyspace[name]
        return ("RESTORE", name, _later(ttl), value, "REPLACE")
    return ("DEL", name)


def _later(ttl: int) -> int:
    return max(ttl, 600_000) if ttl >= 0 else 0


@contextmanager
def recorded(redis: "Redis", monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Call]]:
    """Note every call of a script in this process."""
    calls: list[Call] = []
    arguments, pack, ask = scripts.LuaScript.arguments, scripts.PackedScript.packed, scripts.PackedScript.__call__

    def noting(script: scripts.LuaScript, slots: dict[str, Any]) -> list[Any]:
        calls.append(Call(script, dict(slots), read(redis)))
        return arguments(script, slots)

    def note(packed: scripts.PackedScript, rest: tuple[str | int, ...]) -> None:
        script = packed.script
        slots = dict(zip((*script.keys, *script.argv), (*packed.first, *rest), strict=True))
        calls.append(Call(script, slots, read(redis)))

    def noting_packed(packed: scripts.PackedScript, *rest: str | int) -> bytes:
        note(packed, rest)
        return pack(packed, *rest)

    def noting_asked(packed: scripts.PackedScript, client: Any, *rest: str | int) -> Any:
        note(packed, rest)
        return ask(packed, client, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(scripts.LuaScript, "arguments", noting)
        patch.setattr(scripts.PackedScript, "packed", noting_packed)
        patch.setattr(scripts.PackedScript, "__call__", noting_asked)
        yield calls


def history(driver: Driver, clock: Any, states: str) -> None:
    """Runs that do all there is to do. Whatever is left for later has arrived when the next call is noted."""
    settled: Callable[[], Any] = lambda: driver.line.execute_command("PING")  # noqa: E731 - an expression with a name
    runs, workers = driver.runs, driver.workers
    gpt, tool = AccountKey("model", "A", "gpt"), AccountKey("tool")
    runs.put_bundle("sha", None)
    runs.put_bundle("sha", b"code")
    runs.put_bundle("sha", None)
    runs.put_bundle("damaged", b"codf")
    runs.drop_bundle("damaged", b"codf")
    workers.elect("me", "", 5000)
    workers.beat("w0", 5000)
    run = driver.submit(plan_of("a", "b", "c: a b", "d: c"), bundle="sha", checkpoint_on=",*,", max_checkpoints="3")
    RunPace(driver.redis, run).acquire([("crew", 2)])
    RunPace(driver.redis, run).acquire([("crew", 1)])
    taken = driver.take()
    a, b = driver.task(taken["a"]), driver.task(taken["b"])
    a.note("log", "a line")
    started = a.append_event(
        "agent_execution_started", "a", ends="agent_execution_error", trigger="agent_execution_started"
    )
    call = a.defer_event("llm_call_started", "a", more={"model": "m"}, parent=started, ends="llm_call_failed")
    a.defer_event("llm_call_completed", "a", started=call, cause=started)
    a.append_event("tool_usage_started", "a", more={"tool": "x"}, ends="tool_usage_error")
    a.append_event("agent_execution_completed", "a", started=started)
    a.begin_step(gpt)
    settled()
    a.begin_step(tool)
    settled()
    a.record_step("s#1", "1", replayed=0, entry=gpt, usage=Usage(5, 2))
    a.drop_step(tool)
    settled()
    a.record_step("o#1", "1", replayed=0)
    a.record_step("p#1", "1", replayed=1)
    told = DoneStep("u#1", "1", gpt, Usage(5, 2, 3, 0, 0, 1))
    a.record_steps([DoneStep("t#1", "1"), DoneStep("t#2", "2", None), told], begins=[BegunStep()], replayed=1)
    a.record_steps([], dropped=1, replayed=0)
    store.mark(driver.redis, taken["a"].job, "signal")
    a.ask("q#1", '"what?"', replayed=1)
    runs.answer(run, "main", runs.questions(run, "main")[0], '"that"')
    b.begin_step(gpt)
    settled()
    b.release(replayed=0)
    taken = driver.take()
    driver.task(taken["b"]).begin_step(gpt)
    settled()
    driver.task(taken["b"]).retry(1.0, "it raised", replayed=0)
    clock.go_on(2000)
    workers.move_due()
    assert scripts.load("take")(driver.redis, queue="jobs", job='"runner.job"')  # and lost
    driver.redis.delete("jobs")
    clock.go_on(10_000)
    workers.redeliver(1000)
    workers.check_runs(0)
    spoiled = keys.key("expiring_key", home=keys.HOME)
    driver.redis.set(spoiled, "somebody else's")
    overwritten.remove(driver.redis, keys.HOME)
    (job,) = driver.jobs()
    store.return_job(driver.redis, job)
    b_again = driver.take()["b"]
    driver.task(b_again).begin_step(gpt)
    settled()
    workers.reap("w0", process="p0", reason="it died", max_attempts=5, out={"p0": f"{b_again.token} []"})
    driver.task(b_again).begin_step()  # too late: it is counted all the same
    settled()
    for worker in ("w0", "w1"):
        workers.beat(worker, 5000, "{}")
    driver.take("b")
    (held,) = workers.beat("w0", 5000).claims
    gone = Acknowledged(held.ref, held.token, {"s#1": '[["model", "A", "gpt", 1, 0]]'}, 1, '[["step", "", "", 1, 0]]')
    for ended in ("", "release"):  # what the store never knew
        scripts.load("find_lost_writes")(driver.redis, **LostWrites("w0").slots(replace(gone, ended=ended)))
    workers.take_back("w0", held, reason="no process performs it")
    driver.take()
    workers.reap("w0", reason="it is gone", max_attempts=1)  # and fails the run
    workers.beat("w0", 5000, "{}")
    driver.resume(run)
    driver.work(limit=2)
    kept = runs.checkpoints(run, "main")
    where = position(driver.redis, run, outputs=["a"])
    rerun = frozenset(("c", "d"))
    create(driver.redis, where, "f", rerun=rerun, kept=rerun, edits={"a": '{"raw":"other"}'}, overrides={"x": 1})
    driver.work()
    runs.prune(run, "main", 1)
    kept = runs.checkpoints(run, "main")
    other = driver.submit(plan_of("a", "b", "c: a b"), "r-2", checkpoint_on=",*,")
    taken = driver.take()
    driver.task(taken["a"]).fail("no", replayed=2)
    driver.commit(taken["b"])  # a straggler
    driver.resume(other, "again", start=runs.checkpoints(other, "main")[0])
    driver.resume(other, plan=plan_of("a", "b", "c: a b", "e"), fields={"plan": "other"}) if kept else None
    driver.take()
    runs.cancel(other, "enough")
    third = driver.submit(
        Plan("grows", (PlannedTask("a"),), grows={"name": "F", "methods": []}), "r-3", envelope="", checkpoint_on=",*,"
    )
    job = workers.outbox()[0]
    workers.sent(job)
    claim = driver.claim(job)
    assert isinstance(claim, Claim)
    grown = Expansion('{"raw":"a"}', (PlannedTask("b"),), {"x": "1"}, ("y",), (("log", "a note"),))
    driver.task(claim).expand(grown, "", replayed=0)
    clock.go_on(60_000)
    workers.redeliver(1000)
    driver.redis.hset(keys.run_key(third), "adapter", "strange")
    store.claim(driver.line, workers.outbox()[0], worker="w1", process="p0", unfit=["strange"])
    again = driver.submit(plan_of("e"), "r-4", checkpoint_on=",*,")
    driver.task(driver.take("e")["e"]).release(replayed=1, max_handovers=1)  # once too often: it fails the run
    driver.resume(again)
    e = driver.take("e")["e"]
    workers.take_back("w0", HeldClaim(e.job.ref, e.token, "p0", 0), reason="no process performs it", max_handovers=1)
    driver.submit(plan_of("a", "b: a", "c: b"), "r-5", checkpoint_on=",*,")
    task = driver.task(driver.take("a")["a"])
    for _ in range(2):  # and asked again, as if its answer had been lost
        task.commit('{"raw":"a"}', driver.runs.plan("r-5").dependents["a"], replayed=0, process="p0")
    assert task.next is not None
    one, two = (NewRun(f"r-{number}", number, '{"n": 1}') for number in (6, 7))
    plan = plan_of("a")
    fields = {
        **{"crew": "many", "bundle": "sha", "plan": plan.digest, "queue": "jobs", "keep": "60000", "inputs": "{}"},
        **{"envelope": "direct", "checkpoint_on": ",*,", "max_checkpoints": "0", "adapter": "native"},
    }
    Batches(driver.redis).create("b-1", plan, fields, [one, two], 2)
    Batches(driver.redis).stop("b-1", "enough")
    Batches(driver.redis).stop("b-1", "")
    (first, *_) = [driver.claim(job) for job in driver.jobs()]
    assert isinstance(first, Claim)
    driver.submit(plan, "r-8", checkpoint_on=",*,")
    task = driver.task(first)
    for _ in range(2):
        task.commit('{"raw":"a"}', (), replayed=0, process="p0", queue="jobs")
    assert task.next is not None
    assert task.next.job.run_id == "r-8"
    runs.cancel(two.id, "enough")
    driver.resume(two.id)
    fork = position(driver.redis, one.id)
    create(driver.redis, fork, "f", rerun=frozenset(("a",)), kept=frozenset(), edits={}, overrides={"x": 1})
    clock.go_on(7 * 24 * 3600 * 1000 + 1)
    workers.trim()
    provider = RedisProvider()
    parent = None
    for i in range(4):
        parent = provider.extract_id(
            provider.checkpoint(json.dumps({"a": "x" * 300, "i": i}), states, parent_id=parent)
        )
    provider.from_checkpoint(f"{states}#{parent}")
    provider.checkpoints(states)
    provider.hold(f"{states}#{parent}")
    provider.prune(states, 2)
    provider.prune(states, 1, branch="main")
    provider.release(f"{states}#{parent}")
