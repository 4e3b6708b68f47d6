"""What a run costs to keep: its outputs, and not much beside them."""

import random
import string
from typing import Any

import pytest
from redis import Redis

from runner.core.ledger import Entry, Usage
from runner.core.output import dump
from runner.core.plan import Plan, PlannedTask
from runner.providers.redis import stream
from runner.providers.redis.packing import pack_output, unpack_output

from .driver import Driver, plan_of

PRINTABLE = string.printable[:95]


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
            begun = task.tell("agent_execution_started", planned.key, more={}, **{**who, "ends": "x"})
            entry = Entry("model", "Writer", "gpt-4o-mini")
            task.record_step("model#1", dump(text, None), replayed=0, entry=entry, usage=Usage(1234, 256))
            task.tell("agent_execution_completed", planned.key, more={}, **{**who, "started": begun})
        task.commit(dump(text, None), driver.runs.plan(run).dependents[planned.key], replayed=0, ms=5)
    redis.delete("jobs")
    costs = {key: redis.memory_usage(key, samples=0) - before.get(key, 0) for key in redis.scan_iter("*")}
    assert sum(costs.values()) < 1.5 * sum(len(text.encode()) for text in written.values()), costs
    assert driver.outputs(run) == written


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
    assert driver.task(claim).tell(kind, "a", more=more, **who) == 3
    *_, event = driver.runs.events(run)
    assert (event.seq, event.type, event.parent, event.cause) == (3, kind, 1, 2)
    assert event.fields == {"branch": "main", "task": "a", **more}


def test_an_entry_of_before_is_read() -> None:
    entry = {"seq": "3", "type": "task_completed", "branch": "main", "task": "a", "commit_seq": "1"}
    assert stream.fields_of(entry) == entry
