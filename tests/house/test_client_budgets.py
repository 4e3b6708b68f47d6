"""What a run costs the client that submits it, and a result the one that reads it, in counts that no load changes.

A figure is raised by a line in a diff. What one more of them costs is the difference between many and few.
"""

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
from redis import Redis

from runner.client import Client, prepare
from runner.client.batch_sources import new_runs, submission
from runner.client.handle import result_of
from runner.client.submission import Prepared
from runner.core.jobs import Job
from runner.engine.jobs import JobExecutor
from runner.engine.local import LocalStops
from runner.journal import shared_memory
from runner.providers.redis.keys import queue_of
from runner.providers.redis.pipelined import Replicas
from runner.providers.redis.store import RedisStore
from runner.providers.redis.workers import Workers
from runner.testing import RedisServer
from runner.testing.in_process import LEASE

FEW, MANY = 10, 50

CREW = """
    from runner import Crew, Task

    crew = Crew(tasks=[Task(name="only", run=lambda ctx: "done")])
    """


class Cost(NamedTuple):
    """What one more of them costs."""

    calls: float  #: of Python functions; one more than found, as an answer may be received in more pieces
    commands: float  #: that the server does, with those in scripts
    received: float  #: bytes, by the server
    messages: float = 0.0  #: to the server, each with one command or many


BUDGETS = {
    "submitted run": Cost(calls=168, commands=21, received=1703, messages=1),
    "run of a batch": Cost(calls=13, commands=7, received=57),
    "result of a batch": Cost(calls=56, commands=3, received=194),
    "result of a batch that is waited for": Cost(calls=60, commands=4, received=254),
    "run of a batch that is shown": Cost(calls=16, commands=1, received=451),
}
MARGIN = 1.0 if sys.version_info[:2] == (3, 11) else 1.1  #: of calls: each Python's library has its own

_numbers = count()


class Submitter:
    """A client of a server, and the crew that it submits."""

    def __init__(self, client: Client, redis: Redis, crew: Prepared) -> None:
        self.client, self.redis, self.crew = client, redis, crew
        self.ids: list[str] = []
        self.batch = ""

    def submit(self, many: int) -> None:
        for _ in range(many):
            self.client.submit(self.crew)

    def submit_batch(self, many: int) -> None:
        self.batch = batch = f"b-{next(_numbers):012}"
        runs = new_runs(self.crew, ((number, {}) for number in range(1, many + 1)), batch)
        begun = submission(self.client, self.crew, runs, batch)(many)
        assert begun is not None
        self.ids = [run for _, run, _ in begun]

    def read(self, many: int) -> None:
        found = self.client.store.batches.read(self.ids)
        results = [result_of(self.client.store.runs, run, read=read) for run, read in found.items()]
        assert [one.status for one in results] == ["completed"] * many

    def wait(self, many: int) -> None:
        assert [result.status for _, result in self.client.batch(self.batch)] == ["completed"] * many

    def show(self, many: int) -> None:
        assert self.client.batch(self.batch).state().runs == {"completed": many}

    def cost(self, do: Callable[[int], None], many: int) -> Cost:
        calls = messages = 0

        def counted(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls, messages
            if event == "call":
                calls += 1
                messages += frame.f_code.co_name == "send_packed_command"

        self.redis.config_resetstat()
        sys.setprofile(counted)
        try:
            do(many)
        finally:
            sys.setprofile(None)
        commands = sum(one["calls"] for one in self.redis.info("commandstats").values())
        return Cost(calls, commands, self.redis.info("stats")["total_net_input_bytes"], messages)


@pytest.fixture
def submitter(server: RedisServer, redis: Redis, tmp_path: Path) -> Iterator[Submitter]:
    (tmp_path / "crew.py").write_text(textwrap.dedent(CREW))
    with Client(server.url) as client:
        crew = replace(prepare(str(tmp_path / "crew.py")), origin="here:crew.py")  # a path may be longer elsewhere
        yield Submitter(client, redis, crew)


def do_all(server: RedisServer, redis: Redis, queue: str, cache: Path) -> None:
    """Have the jobs in the queue done, as a worker does."""
    Workers(redis).beat("w0", LEASE, "{}")
    executor = JobExecutor(
        RedisStore(server.url, name="runner:w0", replicas=Replicas()),
        worker="w0", process="p0", cache=cache, stops=LocalStops(), outgoing=None,
        page=shared_memory.page(None, "p0"), retire=None,
    )  # fmt: skip
    while message := redis.rpop(queue):
        executor.do(Job(*json.loads(json.loads(message)["body"])[1].values()))


@pytest.mark.parametrize("what", BUDGETS)
def test_one_more_costs_no_more_than_it_did(
    what: str, submitter: Submitter, server: RedisServer, redis: Redis, tmp_path: Path
) -> None:
    do = {
        "submitted run": submitter.submit,
        "run of a batch": submitter.submit_batch,
        "result of a batch": submitter.read,
        "result of a batch that is waited for": submitter.wait,
        "run of a batch that is shown": submitter.show,
    }[what]

    def prepared(many: int) -> Cost:
        if do not in (submitter.submit, submitter.submit_batch):
            submitter.submit_batch(many)
            do_all(server, redis, queue_of(submitter.client.store.queue(None)), tmp_path / "cache")
        return submitter.cost(do, many)

    for many in (FEW, MANY):  # what is done once in a process is done
        prepared(many)
    few, many = prepared(FEW), prepared(MANY)
    found = Cost(*((after - before) / (MANY - FEW) for before, after in zip(few, many, strict=True)))
    budget = BUDGETS[what]
    assert found.calls <= budget.calls * MARGIN
    assert found.commands <= budget.commands
    assert found.received <= budget.received + 6, "a number may have more digits"
    assert found.messages <= budget.messages
