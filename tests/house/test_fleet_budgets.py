"""What a task and a step cost on the fleet, in counts that no load changes. A figure is raised by a line in a diff.

The executor of a worker does the jobs of a run here, on a real server. What one more of them costs is the difference
between a long run and a short one.
"""

import gc
import itertools
import json
import math
import statistics
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from redis import Redis

from runner.core.clock import SystemClock
from runner.core.jobs import Job
from runner.engine.decisions import Commit
from runner.engine.jobs import JobExecutor
from runner.engine.local import LocalStops
from runner.journal import shared_memory
from runner.providers.records import NewRun
from runner.providers.redis import claimed_steps, run_events
from runner.providers.redis.batches import Batches
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.pipelined import Replicas
from runner.providers.redis.runs import Runs
from runner.providers.redis.store import RedisStore
from runner.providers.redis.workers import Workers
from runner.testing import RedisServer
from runner.testing.in_process import LEASE, QUEUE, prepare

SHORT, LONG = 10, 60

CREWS = {
    "task": """
        from runner import Crew, Task

        crew = Crew(tasks=[Task(name=f"task-{number}", run=lambda ctx: "done") for number in range(10, 10 + MANY)])
        """,
    "step": """
        from runner import Crew, Task

        def work(ctx):
            for number in range(10, 10 + MANY):
                ctx.step("one", int, number)
            return "done"

        crew = Crew(tasks=[Task(name="all", run=work)])
        """,
    "mapped step": """
        from runner import Crew, Task

        async def one(number):
            return number

        async def work(ctx):
            await ctx.amap(one, range(10, 10 + MANY), at_once=MANY)
            return "done"

        crew = Crew(tasks=[Task(name="all", run=work)])
        """,  # on one thread, as what is counted of others differs
}

CREWS["call"] = """
    import json

    from runner import Crew, Task
    from runner.journal.current_journal import current_journal
    from runner.llm.recording.recorded_call import RecordedCall, parse_request

    USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    MESSAGE = {"role": "assistant", "content": "x" * 100}
    CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "stop"}
    BODY = json.dumps({"id": "1", "object": "chat.completion", "usage": USAGE, "choices": [CHOICE]}).encode()
    HEAD = [("content-type", "application/json"), ("content-length", str(len(BODY)))]

    def ask(number):
        # What a transport does for a call, without the client's part
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": str(number)}]}).encode()
        found = current_journal()
        call = RecordedCall(parse_request("POST", "http://localhost/v1/chat/completions", body, *found), *found)
        assert not call.is_known
        found[0].wait_for_turn()
        with call:
            call.begins()
            call.body_has_left()
            assert call.answered(200, HEAD) and not call.streams
            call.post(BODY)()

    def work(ctx):
        for number in range(10, 10 + MANY):
            ask(number)
        return "done"

    crew = Crew(tasks=[Task(name="all", run=work)])
    """
CREWS["gathered call"] = (
    CREWS["call"]
    .replace("import json", "import asyncio, json")
    .replace("def ask", "async def ask")
    .replace(
        "call.begins()",
        "await asyncio.sleep(0)  # it connects\n"
        "            await call.headers_leave_async()\n"
        "            call.body_leaves()",
    )
    .replace("assert call.answered", "await asyncio.sleep(0)  # it is answered\n            assert call.answered")
    .replace("call.post(BODY)()", "await call.whole_async(BODY)")
    .replace("for number in range(10, 10 + MANY):\n            ask(number)", "asyncio.run(gather())")
    .replace(
        "def work", "async def gather():\n        await asyncio.gather(*map(ask, range(10, 10 + MANY)))\n\n    def work"
    )
)
CREWS["agent"] = """
    from runner import Agent, Crew, Task
    from runner.llm.llm import BaseLLM

    class Said(BaseLLM):
        def call(self, messages, **_):
            return "Done."

    agent = Agent(role="writer", goal="write", backstory="writes", llm=Said("m"))
    crew = Crew(
        agents=[agent],
        tasks=[
            Task(name=f"task-{n}", description="Write.", agent=agent, context=[]) for n in range(10, 10 + MANY)
        ],
    )
    """
CREWS["next task"] = CREWS["task"]  # of a process that continues, without a message for each
CREWS["next run"] = CREWS["task"].replace("10 + MANY", "11")  # of one task, by a process that takes it with its commit
CREWS["next run of a batch"] = CREWS["next run"]


class Cost(NamedTuple):
    """What one more of them costs."""

    calls: float  #: of Python functions
    sent: float  #: commands, by the worker
    trips: float  #: times that it waited for the server
    inside: float  #: commands that scripts called, and those that go together but for the first
    received: float  #: bytes, by the server
    answered: float  #: bytes, by the server
    garbage: float = 0  #: objects in cycles, which wait for Python's collector: to look for them took a tenth of a task


BUDGETS = {
    "task": Cost(calls=203, sent=2, trips=2, inside=44, received=893, answered=790),
    "next task": Cost(calls=166, sent=1, trips=1, inside=25, received=308, answered=50),
    "next run": Cost(calls=177, sent=1, trips=1, inside=45, received=521, answered=89),
    "next run of a batch": Cost(calls=180, sent=1, trips=1, inside=47, received=521, answered=89),
    # 902.0 calls, and up to 1.9 more on a busy machine.
    "agent": Cost(calls=903, sent=6, trips=4, inside=71, received=2326, answered=807),
    "step": Cost(calls=34, sent=1, trips=1, inside=6, received=438, answered=78),
    # One of them keeps what a coroutine awaited, although its task is stopped by then.
    "mapped step": Cost(calls=35, sent=0, trips=0, inside=0, received=40, answered=1),
    "call": Cost(calls=68, sent=1, trips=1, inside=9, received=800, answered=5),
    "gathered call": Cost(calls=144, sent=0, trips=0, inside=6, received=580, answered=1),  # 30 are of asyncio
}
MARGIN = 1.0 if sys.version_info[:2] == (3, 11) else 1.1  #: of calls: each Python's library has its own


class Counter:
    """A profile function: counts Python calls, and what goes through sockets."""

    def __init__(self) -> None:
        self.calls = self.sent = self.trips = 0
        self._waits = False

    def __call__(self, frame: object, event: str, function: object) -> None:
        if event == "call":
            self.calls += 1
        elif event == "c_call":
            name = getattr(function, "__name__", "")
            if name == "sendall":
                self.sent += 1
                self._waits = True
            elif name in ("recv", "recv_into") and self._waits:
                self.trips += 1
                self._waits = False


class StandingClock(SystemClock):
    """All takes 0 ms: how long a task or a step took is stored, and has more digits on a busy machine."""

    monotonic = staticmethod(itertools.repeat(1000.0).__next__)


class Worker:
    """One worker's executor on a server, in this process."""

    batched = False  #: whether its runs are submitted together

    def __init__(self, server: RedisServer, redis: Redis, folder: Path, time_slice: float, queue: str) -> None:
        self.redis, self.folder, self.queue = redis, folder, queue
        Workers(redis).beat("w0", LEASE, "{}")
        self.executor = JobExecutor(
            RedisStore(server.url, name="runner:w0", replicas=Replicas()),
            worker="w0",
            process="p0",
            cache=folder / "cache",
            stops=LocalStops(),
            outgoing=lambda text: None,  # as a process of a pool has a page for what its calls are at
            page=shared_memory.page(None, "p0"),
            retire=None,
            time_slice=time_slice,
            clock=StandingClock(),
        )

    def submit(self, code: str, many: int) -> None:
        """Have a run of a crew in the queue."""
        folder = self.folder / f"crew-{many}"
        folder.mkdir(exist_ok=True)
        (folder / "crew.py").write_text(f"MANY = {many}\n{textwrap.dedent(code)}")
        read, runs = prepare(folder / "crew.py"), Runs(self.redis)
        runs.put_bundle(read.bundle.sha256, read.bundle.data)
        names = [f"r-{self.redis.incr('of-the-test'):04}" for _ in range(many if self.queue else 1)]
        fields = {**read.fields, "envelope": DIRECT}
        if self.batched:
            new = [NewRun(name, number, "{}") for number, name in enumerate(names, 1)]
            assert set(Batches(self.redis).create(f"b-{names[0]}", read.plan, fields, new)) == {"created"}
            return
        for name in names:
            assert runs.create(name, read.plan, fields) == "created"

    def jobs(self) -> Iterator[Job]:
        """What waits, oldest first; after each, what the process continues with."""
        while message := self.redis.rpop(QUEUE):
            yield Job(*json.loads(json.loads(message)["body"])[1].values())
            while (claim := self.executor.next) is not None:
                yield claim.job

    def cost(self, code: str, many: int) -> Cost:
        """Do a run; what that cost."""
        self.submit(code, many)
        counter = Counter()
        self.redis.config_resetstat()
        gc.collect()
        gc.disable()  # what listens to it is called, too
        for job in self.jobs():
            sys.setprofile(counter)
            try:
                decision = self.executor.do(job, self.queue)
            finally:
                sys.setprofile(None)
            assert isinstance(decision, Commit)
        garbage = gc.collect()
        gc.enable()
        called = sum(one["calls"] for name, one in self.redis.info("commandstats").items() if name != "cmdstat_rpop")
        through = self.redis.info("stats")
        inside = called - counter.sent
        return Cost(
            *(counter.calls, counter.sent, counter.trips, inside),
            *(through["total_net_input_bytes"], through["total_net_output_bytes"], garbage),
        )

    def usual_cost(self, code: str, many: int) -> Cost:
        """The median of three: the server counts the bytes of a command now and then with those before or after it."""
        return Cost(*map(statistics.median, zip(*(self.cost(code, many) for _ in range(3)), strict=True)))


@pytest.mark.parametrize("what", CREWS)
def test_one_more_costs_no_more_than_it_did(what, server, redis, tmp_path, monkeypatch):
    monkeypatch.setattr(claimed_steps, "AWAY", math.inf)  # however slow the machine is, no step waits for its note
    monkeypatch.setattr(run_events, "call_later", lambda *_: True)  # nor is what it tells sent before its next write
    time_slice, queue = math.inf if what.startswith("next") else 0.0, QUEUE if what.startswith("next run") else ""
    worker, budget = Worker(server, redis, tmp_path, time_slice, queue), BUDGETS[what]
    worker.batched = what.endswith("batch")
    for many in (SHORT, LONG):  # what is done once in a process is done
        worker.cost(CREWS[what], many)
    short, long = worker.usual_cost(CREWS[what], SHORT), worker.usual_cost(CREWS[what], LONG)
    found = Cost(*((after - before) / (LONG - SHORT) for before, after in zip(short, long, strict=True)))
    counted = (found.sent, found.trips, found.inside)
    assert tuple(map(round, counted)) == (budget.sent, budget.trips, budget.inside), "to be written down if it is less"
    assert math.floor(found.calls) <= budget.calls * MARGIN, "one in many steps may meet a beat"
    assert found.received <= budget.received + 6, "what took longer than usual is written with more digits"
    assert math.floor(found.answered) <= budget.answered, "and so is what is answered"
    assert found.garbage <= budget.garbage, "something of it refers to itself"
