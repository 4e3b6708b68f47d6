"""How a flow ends of which the store lost what its methods share, or their outputs: never from an empty state."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from runner.client.flow_position import position_at, ready
from runner.core.errors import OutputGone
from runner.core.jobs import Claim
from runner.core.states import RunStatus
from runner.engine.work import Work
from runner.flows import Flow, listen, start
from runner.flows.adapter import FLOW
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.providers.redis import keys, outages
from runner.providers.redis.connection import connect, patient
from runner.providers.redis.dynamic_plan import GrowingBranch
from runner.providers.redis.workers import Workers
from runner.testing import RedisServer

from .conftest import LossyLine
from .driver import Driver
from .test_key_fates import overwritten


class Counts(Flow[dict]):
    @start()
    def a(self):
        self.state["done"] = ["a"]
        return "from a"

    @listen(a)
    def b(self, given):
        self.state["done"] = [*self.state["done"], given]

    @listen(b)
    def c(self):
        self.state["done"] = [*self.state["done"], "c"]
        return "from c"

    @listen(c)
    def d(self, given):
        self.state["done"] = [*self.state["done"], given]


DONE = ["a", "from a", "c", "from c"]
PLAN = FLOW.plan(Counts, "x")


class Recorder:
    """Methods have no steps here."""


class Line:
    """A worker in miniature, and the branch that it works on."""

    def __init__(self, server: RedisServer) -> None:
        self.clients = connect(server.url), patient(server.url)
        self.line = LossyLine(self.clients[1])
        self.driver = Driver(self.clients[1], self.line)
        self.driver.workers = Workers(self.clients[0])
        self.branch = GrowingBranch(self.clients[1], "r-1", "main")

    def close(self) -> None:
        self.line.close()
        for client in self.clients:
            client.close()

    def do(self, claim: Claim) -> None:
        """Do a method, and commit it as the engine does."""
        journal = Journal({}, Recorder(), CancelScope())
        task = self.driver.task(claim)
        work = Work("r-1", "main", 1, claim.job.task, PLAN, {}, journal, dict, print, line=self.branch)
        try:
            expand = FLOW.expand(Counts, work)
            for shared in iter(self.branch.shared, None):
                if task.expand(expand(shared), shared.version, replayed=0):
                    return
        except OutputGone as error:
            task.fail(str(error), replayed=0)

    def work(self, limit: int = 100) -> None:
        for _ in range(limit):
            if not (claims := self.driver.take()):
                return
            for claim in claims.values():
                self.do(claim)

    def resume(self) -> str:
        return self.driver.resume("r-1", pending=ready(PLAN, position_at(PLAN, self.branch)))


@pytest.fixture
def flow(server: RedisServer, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setattr(outages, "MENDED", 10.0)
    one = Line(server)
    one.driver.submit(PLAN, beginning="{}")
    yield one
    one.close()


def key(name: str) -> str:
    return keys.key(name, branch_key=keys.branch_key("r-1", "main"))


@pytest.mark.parametrize("done", range(1, 4))
@pytest.mark.parametrize("harm", [Redis.delete, overwritten], ids=["gone", "overwritten"])
def test_what_the_methods_share_is_made_again_from_their_outputs(
    flow: Line, redis: Redis, harm: Callable[[Redis, str], object], done: int
) -> None:
    flow.work(done)
    harm(redis, key("shared_key"))
    flow.work()
    assert flow.driver.runs.get("r-1").status is RunStatus.completed
    assert position_at(PLAN, flow.branch).state == {"done": DONE}


LOST = [["outputs_key"], ["outputs_key", "shared_key"]]


@pytest.mark.parametrize(("done", "later"), [*itertools.product(range(1, 4), range(2))])
@pytest.mark.parametrize("lost", LOST, ids=["outputs", "both"])
def test_without_its_outputs_a_flow_fails_with_the_reason_and_a_resume_does_again_what_is_gone(
    flow: Line, redis: Redis, lost: list[str], done: int, later: int
) -> None:
    flow.work(done)
    redis.delete(key("outputs_key"))
    flow.work(later)
    redis.delete(*map(key, lost))
    flow.work()
    run = flow.driver.runs.get("r-1")
    assert run.status is RunStatus.failed
    assert "gone from the store" in flow.driver.runs.branch("r-1", "main").error
    assert flow.resume() == "resumed"
    flow.work()
    assert flow.driver.runs.get("r-1").status is RunStatus.completed
    assert position_at(PLAN, flow.branch).state == {"done": DONE}
