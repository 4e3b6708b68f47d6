"""What runs cost to keep: a long one for each task, and the time of its commits early and late; many short ones.

The commits go through the store's own claim and commit, without Celery, so that nothing else is measured.
"""

import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from redis import Redis
from servers import Server
from table import Row
from waiting import until

from runner.client import prepare
from runner.client.batch import CHUNK
from runner.client.submission import KEEP, run_fields
from runner.core import output
from runner.core.jobs import Job, Refusal
from runner.core.plan import Plan, PlannedTask
from runner.providers.records import NewRun
from runner.providers.redis import keys, store
from runner.providers.redis.batches import Batches
from runner.providers.redis.connection import connect
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.runs import Runs
from runner.providers.redis.store import ClaimedTask
from runner.providers.redis.workers import Workers

WINDOW = 200
PAYLOAD = 1024
ONE_TASK = (
    'from runner import Crew, Task\ncrew = Crew(name="small", tasks=[Task(name="work", run=lambda ctx: "done")])\n'
)
CONTROL = 'return redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])'


class LongRun:
    """One sequential run that is driven by hand."""

    def __init__(self, line: PipelinedConnection, runs: Runs, run_id: str, tasks: int) -> None:
        self._line = line
        self._tasks = [PlannedTask(f"task-{i:05d}", after=(f"task-{i - 1:05d}",) if i else ()) for i in range(tasks)]
        self.id = run_id
        fields = {
            "crew": "long", "adapter": "native", "bundle": "", "module": "crew", "attr": "crew", "plan": "",
            "queue": "q", "result_task": self._tasks[-1].key, "output_files": "{}", "inputs": "{}", "keep": "3600000",
            "envelope": "", "checkpoint_on": ",task_completed,", "max_checkpoints": "0",
        }  # fmt: skip
        runs.create(run_id, Plan("long", tuple(self._tasks)), fields)
        self._next = 0

    @property
    def done(self) -> int:
        """How many tasks are committed."""
        return self._next

    def one(self) -> float:
        """Claim and commit the next task; gives the seconds of the commit alone."""
        i = self._next
        self._next += 1
        claim = store.claim(self._line, Job(self.id, "main", self._tasks[i].key, 1), worker="w", process="1")
        if isinstance(claim, Refusal):
            raise RuntimeError(claim.reason)
        text = output.dump(random.randbytes(PAYLOAD // 2).hex(), None)  # nothing that compresses to nothing
        began = time.perf_counter()
        ClaimedTask(self._line, claim).commit(text, self._tasks[i + 1 : i + 2], replayed=0, ms=5)
        return time.perf_counter() - began


def measure(server: Server, tasks: int) -> Iterator[Row]:
    client = connect(server.url)
    line, runs = PipelinedConnection(client), Runs(client)
    Workers(client).beat("w", 3_600_000, "{}")
    redis = server.client()
    control = redis.script_load(CONTROL)
    aof_before = redis.info("persistence")["aof_current_size"]
    long = LongRun(line, runs, "r-long", tasks)
    for _ in range(tasks - WINDOW):
        long.one()
    # The last commits of the long run beside the first of a fresh one, and beside a raw script, who comes first in
    # turn: what disturbs one disturbs all.
    fresh = LongRun(line, runs, "r-fresh", tasks)
    raw_number = itertools.count()

    def raw() -> float:
        began = time.perf_counter()
        redis.evalsha(control, 1, "control", next(raw_number), "x" * PAYLOAD)
        return time.perf_counter() - began

    times: dict[str, list[float]] = {"late": [], "early": [], "raw": []}
    acts = {"late": long.one, "early": fresh.one, "raw": raw}
    for name, act in itertools.islice(
        itertools.cycle(itertools.chain(*itertools.permutations(acts.items()))), 3 * WINDOW
    ):
        times[name].append(act())
    written = redis.info("persistence")["aof_current_size"] - aof_before
    yield bytes_row(redis, long.id, tasks, written)
    yield commit_row(times, tasks)
    yield events_row(runs, long)
    yield from batch_rows(server, 20_000 if tasks < 10_000 else 100_000)


def events_row(runs: Runs, long: LongRun) -> Row:
    told = sum(event.type == "task_completed" for event in runs.events(long.id))
    return Row(
        "events", f"tasks that completed, in the events of a run of {long.done:,}", told / long.done, f"{told:,}",
        "all", told == long.done,
    )  # fmt: skip


def batch_rows(server: Server, many: int) -> Iterator[Row]:
    """So many runs of one task: how they are accepted, what one takes when it is over, and a list of the newest."""
    client = connect(server.url)
    line, runs, batches = PipelinedConnection(client), Runs(client), Batches(client)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "crew.py").write_text(ONE_TASK)
        read = prepare(f"{folder}/crew.py")
    fields = run_fields(read, None, "small", keep=KEEP)
    runs.put_bundle(read.packed.sha256, read.packed.data)
    scripts = []
    for first in range(0, many, CHUNK):
        some = [NewRun(f"r-{number:012x}", number, f'{{"n": {number}}}') for number in range(first, first + CHUNK)]
        began = time.perf_counter()
        batches.create("b-bench", read.plan, fields, some)
        scripts.append(time.perf_counter() - began)
    rate, one = many / sum(scripts), statistics.median(scripts) * 1e3
    yield Row(
        "accepted", f"{many:,} runs accepted, {CHUNK} by one script", rate, f"{rate:,.0f}/s; one script {one:.0f} ms",
        samples={"scripts": scripts},
    )  # fmt: skip
    times = []
    for _ in range(50):
        began = time.perf_counter()
        runs.newest(30)
        times.append(time.perf_counter() - began)
    middle = statistics.median(times) * 1e3
    yield Row(
        "listed",
        f"the newest 30 of {many:,} runs",
        middle,
        f"{middle:.1f} ms",
        "< 50 ms",
        middle < 50,
        samples={"listed": times},
    )
    run = "r-000000000001"
    claim = store.claim(line, Job(run, "main", "work", 1), worker="w", process="1")
    if isinstance(claim, Refusal):
        raise RuntimeError(claim.reason)
    ClaimedTask(line, claim).commit(output.dump("done 1", None), [], replayed=0, ms=5)
    redis = server.client()
    size = sum(redis.memory_usage(key, samples=0) or 0 for key in redis.scan_iter(f"{keys.run_key(run)}*", 1000))
    yield Row("small", "memory of a finished run of one task", size, f"{size:,} bytes", "< 3,000", size < 3000)


def bytes_row(redis: "Redis[str]", run_id: str, tasks: int, written: int) -> Row:
    outputs = tasks * PAYLOAD
    found = {key: redis.memory_usage(key, samples=0) or 0 for key in redis.scan_iter(f"{keys.run_key(run_id)}*", 1000)}
    ratio = sum(found.values()) / outputs
    redis.bgrewriteaof()
    until(lambda: not _rewriting(redis), "the append-only file is rewritten")
    rewritten = redis.info("persistence")["aof_base_size"]
    parts = sorted(found.items(), key=lambda item: -item[1])[:4]
    named = ", ".join(f"{key.removeprefix(keys.run_key(run_id)) or 'run'} {size / outputs:.2f}" for key, size in parts)
    return Row(
        "bytes", f"memory for {tasks:,} tasks of 1 KB / bytes of their outputs", ratio,
        f"{ratio:.2f} ({named}); append-only file {written / outputs:.2f}, {rewritten / outputs:.2f} after a rewrite",
        "< 1.5", ratio < 1.5,
    )  # fmt: skip


def _rewriting(redis: "Redis[str]") -> bool:
    info = redis.info("persistence")
    return bool(info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])


def commit_row(times: dict[str, list[float]], tasks: int) -> Row:
    last, first, bare = (statistics.median(times[name]) * 1e6 for name in ("late", "early", "raw"))
    return Row(
        "commit", f"commit at task {tasks:,} / at task 10 (medians of {WINDOW}, interleaved)", last / first,
        f"{last:.0f} us / {first:.0f} us", "< 1.2", last / first < 1.2, f"{bare:.0f} us: bare script of 1 KB",
        f"{last / first:.2f}", times,
    )  # fmt: skip
