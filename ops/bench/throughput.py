"""How much gets done: durable steps, tasks of a crew, runs; beside a raw script and plain Celery, round by round."""

import importlib
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import processor
from fleet import HERE, Fleet, celery_worker
from redis import Redis
from servers import Server
from table import Row, median_ratio, rate, spread
from waiting import until

from runner.client import Client, prepare

STEPS = 2000
MAPPED = 10_000
TASKS = 100
RUNS = 300

FENCED = """
if redis.call("HGET", KEYS[1], "token") ~= ARGV[1] then return 0 end
return redis.call("HSET", KEYS[2], ARGV[2], ARGV[3])
"""

_numbers = itertools.count()


def measure(server: Server, wanted: set[str], rounds: int) -> Iterator[Row]:
    """One runner worker and one Celery worker, both idle but for the one that is measured."""
    os.environ["BENCH_SOCKET"] = server.socket
    peer = importlib.import_module("peer")
    with (
        Client(server.url) as client, server.client(1) as redis, Fleet(server, 1) as fleet,
        celery_worker(server) as celery,
    ):  # fmt: skip
        # The submitter and the server are part of both.
        group_of = {"ours": fleet.workers[0].process.pid, "theirs": celery.process.pid}
        pairs: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
            "steps": (lambda: steps(client), lambda: raw_commits(redis)),
            "map": (lambda: steps(client, "mapped", MAPPED), lambda: raw_commits(redis)),
            "crew": (lambda: crew(client), lambda: chain(peer, redis)),
            "runs": (lambda: runs(client), lambda: tasks(peer, redis)),
            "batch": (lambda: batch(client), lambda: tasks(peer, redis)),
            "processor": (
                lambda: microseconds(lambda: crew(client), group_of["ours"], server.pid),
                lambda: microseconds(lambda: chain(peer, redis), group_of["theirs"], server.pid),
            ),
        }
        pairs = {name: pair for name, pair in pairs.items() if name in wanted}
        found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
        for number in range(rounds + 1):
            for name, (ours, theirs) in pairs.items():
                # Who comes first alternates; the first round warms up.
                both = (ours(), theirs()) if number % 2 else (theirs(), ours())[::-1]
                if number:
                    found[name][0].append(both[0])
                    found[name][1].append(both[1])
    yield from (row(*found[name]) for name, row in ROWS.items() if name in found)


# -- what is measured: each gives a number per second


def steps(client: Client, crew: str = "steps", count: int = STEPS) -> float:
    handle = client.submit(CREWS[crew], {"steps": count})
    told = json.loads(handle.wait(60).result or "{}")
    return float(told["steps"] / told["seconds"])


def raw_commits(redis: "Redis[str]") -> float:
    """The floor: a fenced write of the same size, one after the other, on one connection."""
    token, journal = f"floor:{next(_numbers)}", f"floor:{next(_numbers)}"
    redis.hset(token, "token", "7")
    sha = redis.script_load(FENCED)
    value = "x" * 1024
    began = time.perf_counter()
    for i in range(STEPS):
        redis.evalsha(sha, 2, token, journal, "7", f"step {i}", value)
    return STEPS / (time.perf_counter() - began)


def crew(client: Client) -> float:
    began = time.perf_counter()
    result = client.submit(CREWS["hundred"]).wait(60)
    seconds = time.perf_counter() - began
    if len(result.outputs) != TASKS:
        raise RuntimeError(f"the crew {result.status}: {result.error}")
    return TASKS / seconds


def chain(peer: Any, redis: "Redis[str]") -> float:
    from celery import chain as celery_chain

    key = f"chain:{next(_numbers)}"
    linked = celery_chain(*[peer.nothing.si() for _ in range(TASKS - 1)], peer.last.si(key))
    began = time.perf_counter()
    linked.apply_async()
    if not redis.blpop([key], timeout=60):
        raise TimeoutError("the chain did not end")
    return TASKS / (time.perf_counter() - began)


def runs(client: Client) -> float:
    began = time.perf_counter()
    handles = [client.submit(CREWS["one"]) for _ in range(RUNS)]
    until(lambda: client.store.workers.active_runs() == 0, "the runs end", within=60)
    seconds = time.perf_counter() - began
    if any(handle.status != "completed" for handle in handles):
        raise RuntimeError("a run did not complete")
    return RUNS / seconds


def batch(client: Client) -> float:
    began = time.perf_counter()
    ended = [result.status for _, result in client.submit_many(CREWS["one"], [{}] * RUNS, at_once=RUNS)]
    seconds = time.perf_counter() - began
    if ended != ["completed"] * RUNS:
        raise RuntimeError("a run did not complete")
    return RUNS / seconds


def microseconds(do: Callable[[], object], group: int, server: int) -> float:
    """Processor time of a task while ``do`` has a hundred done: of the worker, of the server, and of this process."""
    before = processor.used([group], [server, os.getpid()])
    do()
    return (processor.used([group], [server, os.getpid()]) - before) / TASKS * 1e6


def tasks(peer: Any, redis: "Redis[str]") -> float:
    key = f"count:{next(_numbers)}"
    began = time.perf_counter()
    for _ in range(RUNS):
        peer.count.apply_async((key,))
    until(lambda: int(redis.get(key) or 0) == RUNS, "the tasks end", within=60)
    return RUNS / (time.perf_counter() - began)


CREWS = {name: prepare(f"{HERE / 'crews' / 'crew.py'}:{name}") for name in ("steps", "mapped", "hundred", "one")}


# -- the rows


def steps_row(ours: list[float], floor: list[float]) -> Row:
    middle = statistics.median(ours)
    return Row(
        "steps", "durable steps of 1 KB in one task", middle, rate(ours), "> 5,000/s", middle > 5000,
        f"{rate(floor)}: bare fenced script, same connection kind", f"{median_ratio(ours, floor):.2f}",
        {"ours": ours, "peer": floor},
    )  # fmt: skip


def map_row(ours: list[float], floor: list[float]) -> Row:
    ratio = median_ratio(ours, floor)
    return Row(
        "map", f"ctx.map of {MAPPED} steps of 1 KB, 64 at once", ratio, rate(ours), ">= 5 x", ratio >= 5,
        f"{rate(floor)}: bare fenced script for each", f"{ratio:.2f}", {"ours": ours, "peer": floor},
    )  # fmt: skip


def crew_row(ours: list[float], celery: list[float]) -> Row:
    ratio = median_ratio(ours, celery)
    return Row(
        "crew", f"sequential crew of {TASKS} tasks", ratio, rate(ours, " tasks/s"), ">= 1.5 x", ratio >= 1.5,
        f"{rate(celery, ' tasks/s')}: Celery chain, no durability", f"{ratio:.2f}", {"ours": ours, "peer": celery},
    )  # fmt: skip


def runs_row(ours: list[float], celery: list[float]) -> Row:
    ratio = median_ratio(ours, celery)
    return Row(
        "runs", f"{RUNS} runs of one task, submitted to ended", ratio, rate(ours, " runs/s"), ">= 0.8 x", ratio >= 0.8,
        f"{rate(celery, ' tasks/s')}: Celery tasks, no durability", f"{ratio:.2f}", {"ours": ours, "peer": celery},
    )  # fmt: skip


def batch_row(ours: list[float], celery: list[float]) -> Row:
    ratio = median_ratio(ours, celery)
    return Row(
        "batch", f"{RUNS} runs of one task, submitted as a batch, to all results", ratio, rate(ours, " runs/s"),
        ">= 2 x", ratio >= 2, f"{rate(celery, ' tasks/s')}: Celery tasks, no durability", f"{ratio:.2f}",
        {"ours": ours, "peer": celery},
    )  # fmt: skip


def processor_row(ours: list[float], celery: list[float]) -> Row:
    middle = statistics.median(ours)
    return Row(
        "processor", "processor time of a task of that crew: worker, server and submitter", middle,
        spread(ours, 0, " µs"), "< 600 µs", middle < 600, f"{spread(celery, 0, ' µs')}: a task of the chain",
        f"{median_ratio(ours, celery):.2f}",
        {"ours": ours, "peer": celery},
    )  # fmt: skip


ROWS: dict[str, Callable[[list[float], list[float]], Row]] = {
    "steps": steps_row, "map": map_row, "crew": crew_row, "processor": processor_row,
    "runs": runs_row, "batch": batch_row,
}  # fmt: skip
