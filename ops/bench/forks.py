"""What a fork costs: the time of one call of the client, and the bytes that it adds before its first commit."""

import random
import statistics
import time
from collections.abc import Iterator

from redis import Redis
from servers import Server
from storage import PAYLOAD
from table import Row, spread

from runner.client import Client
from runner.core import output
from runner.core.jobs import Job, Refusal
from runner.core.plan import Plan, PlannedTask
from runner.providers.redis import store
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.store import ClaimedTask

RUN = "r-0123456789ab"
QUEUE = "forked"
FORKS = 60


def measure(server: Server, tasks: int) -> Iterator[Row]:
    with Client(server.url) as client:
        _run(client, tasks)
        at = client.checkpoints(RUN, "main")[tasks // 2 - 1]
        redis = server.client()
        times: list[float] = []
        worked: list[float] = []
        added: list[int] = []
        for _ in range(FORKS):
            redis.delete(QUEUE)
            before = _used(redis)
            began, busy = time.perf_counter(), time.process_time()
            handle = client.fork(RUN, checkpoint=at.id, edits={f"task-{tasks // 4:05d}": "edited by hand"})
            times.append(time.perf_counter() - began)
            worked.append(time.process_time() - busy)
            added.append(_used(redis) - before)
        left = client.store.runs.branch(RUN, str(handle.branch)).left
        plan = client.store.runs.branch_plan(RUN, str(handle.branch))
        again = sum(int(task.key.removeprefix("task-")) < tasks // 2 for task in plan.tasks)
    median = statistics.median(times) * 1000
    what = f"fork of a run of {tasks:,} tasks at task {tasks // 2:,}, one output edited: one call of the client"
    yield Row(
        "fork", what, median,
        f"{spread([one * 1000 for one in times[1:]], 1, ' ms')}; the first {times[0] * 1000:.1f} ms; "
        f"processor time of the client {statistics.median(worked) * 1000:.1f} ms; "
        f"{again} tasks to do again, {left - again} that were not done by then",
        "< 5 ms median", median < 5, samples={"times": times},
    )  # fmt: skip
    bytes_added = statistics.median(added)
    yield Row(
        "fork bytes", "what that adds to Redis before its first commit, its first message included", bytes_added,
        f"{bytes_added:,.0f} bytes", "< 2,048", bytes_added < 2048, samples={"bytes": [float(n) for n in added]},
    )  # fmt: skip


def _run(client: Client, tasks: int) -> None:
    """A sequential run that went through. Each task is made from the one before it, but for each tenth one."""
    planned = [PlannedTask("task-00000")]
    for i in range(1, tasks):
        before = f"task-{i - 1:05d}"
        planned.append(PlannedTask(f"task-{i:05d}", (before,), (before,) if i % 10 else ()))
    plan = Plan("long", tuple(planned))
    fields = {
        "crew": "long", "adapter": "native", "bundle": "", "module": "crew", "attr": "crew", "plan": plan.digest,
        "queue": QUEUE, "result_task": planned[-1].key, "output_files": "{}", "inputs": "{}", "keep": "3600000",
        "envelope": DIRECT, "checkpoint_on": ",task_completed,", "max_checkpoints": "0",
    }  # fmt: skip
    client.store.workers.beat("w", 3_600_000, "{}")
    client.store.runs.create(RUN, plan, fields)
    line = PipelinedConnection(client.store.client)
    for i, task in enumerate(planned):
        claim = store.claim(line, Job(RUN, "main", task.key, 1), worker="w", process="1")
        if isinstance(claim, Refusal):
            raise RuntimeError(claim.reason)
        text = output.dump(random.randbytes(PAYLOAD // 2).hex(), None)
        ClaimedTask(line, claim).commit(text, planned[i + 1 : i + 2], replayed=0, ms=1)


def _used(redis: "Redis[str]") -> int:
    """The memory of all keys."""
    pipe = redis.pipeline(transaction=False)
    for key in redis.scan_iter("*", 10_000):
        pipe.memory_usage(key, samples=0)
    return sum(size or 0 for size in pipe.execute())
