"""What a run costs to keep: its outputs, and not much beside them."""

import json
import random
import re
import string
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client, prepare
from runner.client.submission import KEEP, run_fields
from runner.core.jobs import Claim
from runner.core.ledger import AccountKey, Usage
from runner.core.output import dump, pack_output
from runner.core.plan import Plan, PlannedTask
from runner.core.stored_output import unpack_output
from runner.providers.records import NewRun
from runner.providers.redis import keys, stream
from runner.providers.redis.batches import Batches
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.keys import queue_of
from runner.providers.redis.pipelined import PipelinedConnection

from .driver import Driver, plan_of

ROOT = Path(__file__).resolve().parents[3]

PRINTABLE = string.printable[:95]

LISTING = 400  #: bytes for each run that is listed, however many there are

A_SHORT_RUN = 2600  #: bytes that a finished run of one task takes, with all that it is submitted with


def text_of(letters: str, length: int = 1024) -> str:
    return "".join(random.Random(length).choices(letters, k=length))


@pytest.mark.parametrize("by_agents", [False, True])
@pytest.mark.parametrize("letters", [PRINTABLE, string.hexdigits, "чашка的 é"])
def test_a_hundred_tasks_of_1_kb_cost_less_than_one_and_a_half_times_their_outputs(
    driver: Driver, redis: Redis, letters: str, by_agents: bool
) -> None:
    """Also those of agents, of which the run tells more."""
    tasks = (PlannedTask("part_0"), *(PlannedTask(f"part_{i}", (f"part_{i - 1}",)) for i in range(1, 100)))
    run = driver.submit(Plan("crew", tasks), checkpoint_on=",task_completed,")
    before = {key: redis.memory_usage(key, samples=0) for key in redis.scan_iter("*")}
    written = {}
    chance = random.Random(1)
    for planned in tasks:
        claim = driver.take()[planned.key]
        task = driver.task(claim)
        written[planned.key] = text = "".join(chance.choices(letters, k=1024))
        if by_agents:
            who = {"parent": 0, "started": 0, "cause": 0, "ends": "", "trigger": ""}
            begun = task.append_event("agent_execution_started", planned.key, more={}, **{**who, "ends": "x"})
            entry = AccountKey("model", "Writer", "gpt-4o-mini")
            task.record_step("model#1", dump(text, None), replayed=0, entry=entry, usage=Usage(1234, 256))
            task.append_event("agent_execution_completed", planned.key, more={}, **{**who, "started": begun})
        task.commit(dump(text, None), driver.runs.plan(run).dependents[planned.key], replayed=0, ms=5)
    redis.delete("jobs")
    costs = {key: redis.memory_usage(key, samples=0) - before.get(key, 0) for key in redis.scan_iter("*")}
    assert sum(costs.values()) < 1.5 * sum(len(text.encode()) for text in written.values()), costs
    assert driver.outputs(run) == written


def test_a_finished_run_of_one_task_is_small(client: Client, redis: Redis, write_crew: Any) -> None:
    """Whatever the server's settings: what it allotted for more events is given back when the run ends."""
    crew = write_crew('from runner import Crew, Task\ncrew = Crew(tasks=[Task(name="work", run=lambda ctx: "done")])\n')
    read, run, driver = prepare(str(crew)), "r-0123456789ab", Driver(redis, PipelinedConnection(redis))
    fields = run_fields(read, {"n": 1}, "jobs", keep=KEEP)
    fields["target"] = "a-machine:/home/somebody/projects/crew.py::crew"
    driver.runs.put_bundle(read.packed.sha256, read.packed.data)
    assert driver.runs.create(run, read.plan, fields) == "created"
    claim = driver.claim(next(driver.jobs(queue_of("jobs"))))
    assert isinstance(claim, Claim)
    before = [event.to_dict() for event in client.run(run).events()]
    driver.task(claim).commit(dump("done 1", None), [], replayed=0, ms=5)
    costs = {key: redis.memory_usage(key, samples=0) for key in redis.scan_iter(f"{keys.run_key(run)}*")}
    assert sum(costs.values()) < A_SHORT_RUN, costs
    events = [event.to_dict() for event in client.run(run).events()]
    assert events[:2] == before
    assert [event["type"] for event in events[2:]] == ["task_completed", "crew_kickoff_completed"]
    # Who has read up to there, reads what comes later
    last = client.store.runs.last_event(run)
    client.fork(run, inputs={"n": 2})
    assert next(iter(client.store.runs.events(run, after=last))).seq == 5


@pytest.mark.parametrize("many", [1, 3])
@pytest.mark.parametrize("on", ["", "crew_kickoff_started,"])
def test_each_run_of_a_batch_is_as_small(driver: Driver, redis: Redis, on: str, many: int) -> None:
    """Each begins with a stream that has no room for more events, and is not copied when it ends."""
    plan = plan_of("a")
    fields = {
        **{"crew": "many", "adapter": "native", "bundle": "sha", "module": "crew", "attr": "crew", "queue": "jobs"},
        **{"plan": plan.digest, "keep": "600000", "max_checkpoints": "0", "envelope": DIRECT},
        **{"checkpoint_on": f",{on}task_completed,", "target": "a-machine:/home/somebody/projects/crew.py::crew"},
    }
    driver.runs.put_bundle("sha", b"code")
    runs = [NewRun(f"r-{number}", number, "{}") for number in range(many)]
    assert Batches(redis).create("b-1", plan, fields, runs) == ["created"] * many
    driver.work()
    for run in runs:
        costs = {key: redis.memory_usage(key, samples=0) for key in redis.scan_iter(f"{keys.run_key(run.id)}*")}
        assert sum(costs.values()) < A_SHORT_RUN, costs


@pytest.mark.parametrize("file", ["ops/redis.conf", "runner/client/embedded/keeper.py"])
def test_inputs_that_are_longer_leave_it_small_with_the_setting(driver: Driver, redis: Redis, file: str) -> None:
    (most,) = re.findall(r'hash-max-listpack-value"?,? "?(\d+)', (ROOT / file).read_text())
    before = redis.config_get("hash-max-listpack-value")
    redis.config_set("hash-max-listpack-value", most)
    try:
        run = driver.submit(plan_of("a"), inputs=json.dumps({"topic": "x" * 200}), target="host:/" + "x" * 150)
        driver.work()
        costs = {key: redis.memory_usage(key, samples=0) for key in redis.scan_iter(f"{keys.run_key(run)}*")}
    finally:
        redis.config_set("hash-max-listpack-value", before["hash-max-listpack-value"])
    assert sum(costs.values()) < A_SHORT_RUN, costs


def test_listing_the_newest_runs_costs_what_is_listed(client: Client, redis: Redis) -> None:
    """One command for their ids and one for each; also of 3,000, that were accepted by 15 scripts."""
    plan = plan_of("a")
    fields = {
        **{"crew": "many", "bundle": "", "plan": plan.digest, "queue": "jobs", "keep": "60000", "inputs": "{}"},
        **{"envelope": DIRECT, "checkpoint_on": "", "max_checkpoints": "0"},
    }
    for first in range(0, 3000, 200):
        runs = [NewRun(f"r-{number}", number, "{}") for number in range(first, first + 200)]
        assert client.store.batches.create("b-1", plan, fields, runs) == ["created"] * 200
    redis.config_resetstat()
    told = redis.info("stats")["total_net_output_bytes"]
    assert len(client.runs(limit=30)) == 30
    told = redis.info("stats")["total_net_output_bytes"] - told
    calls = {name: told["calls"] for name, told in redis.info("commandstats").items()}
    assert {name: many for name, many in calls.items() if "info" not in name and "config" not in name} == {
        "cmdstat_zrevrange": 1,
        "cmdstat_hmget": 30,
    }
    assert told < 30 * LISTING + 10_000  # what INFO says among them


@pytest.mark.parametrize(
    "text", ["", "short", text_of("ab"), text_of(PRINTABLE), text_of('\0\x1f"\\é🐝的 '), "x" * 10**6]
)
def test_what_is_packed_comes_back(driver: Driver, text: str) -> None:
    rest = dump(text, {"also": text})[1:]
    packed = pack_output(rest)
    assert len(packed) <= len(rest.encode()) + 1
    stored = '{"seq":1,"token":2,' + packed.decode("utf-8", "surrogateescape")
    assert unpack_output(stored) == {"seq": 1, "token": 2, "raw": text, "json": {"also": text}}
    # In a run too, where another task reads it
    run = driver.submit(plan_of("a", "b: a"))
    driver.task(driver.take("a")["a"]).commit(dump(text, None), driver.runs.plan(run).dependents["a"], replayed=0)
    assert driver.take("b")["b"].context["a"]["raw"] == text
    assert driver.runs.committed(run, "main")["a"].raw == text


ENTRIES: list[tuple[str, dict[str, Any]]] = [
    ("task_started", {"attempt": "1", "worker": "w", "token": "3"}),
    ("task_started", {"worker": "w", "attempt": "1"}),
    ("task_started", {}),
    ("agent_execution_started", {}),
    ("agent_execution_started", {"error": "interrupted"}),
    ("my own", {"text": 'a "quoted"\nline, ünd 🐝'}),
]


@pytest.mark.parametrize(("kind", "more"), ENTRIES)
def test_an_event_in_short_tells_what_it_told(driver: Driver, redis: Redis, kind: str, more: dict[str, Any]) -> None:
    run = driver.submit(plan_of("a"))
    who = {"parent": 1, "started": 0, "cause": 2, "ends": "", "trigger": ""}
    claim = driver.take()["a"]
    assert driver.task(claim).append_event(kind, "a", more=more, **who) == 3
    *_, event = driver.runs.events(run)
    assert (event.seq, event.type, event.parent, event.cause) == (3, kind, 1, 2)
    assert event.fields == {"branch": "main", "task": "a", **more}


def test_an_entry_of_before_is_read() -> None:
    entry = {"seq": "3", "type": "task_completed", "branch": "main", "task": "a", "commit_seq": "1"}
    assert stream.fields_of(entry) == entry


def test_an_event_is_stored_in_short(driver: Driver, redis: Redis) -> None:
    """As `stream` lays it out: the names of what most events have stand in no entry."""
    run = driver.submit(plan_of("a"))
    task = driver.task(driver.take()["a"])
    task.append_event("my own", "a", more={"text": "x"}, parent=2, started=2, cause=1)
    task.commit('{"raw":"a"}', (), replayed=0)
    stored = [list(entry.values()) for _, entry in redis.xrange(keys.key("events_key", run=keys.run_key(run)))]
    assert [entry[1:] for entry in stored] == [
        ["crew_kickoff_started", "", "", "0", "0", "0", ""],
        ["\x01", "", "a", "1", "0", "0", '["1","w0","1"]'],
        ["my own", "", "a", "2", "2", "1", '["text","x"]'],
        ["\x02", "", "a", "1", "2", "0", '["1"]'],
        ["crew_kickoff_completed", "", "", "0", "1", "0", ""],
    ]
