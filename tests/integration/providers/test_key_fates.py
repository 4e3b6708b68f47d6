"""How a run ends of which one key is gone, or overwritten with another type: whichever key that is, at each moment."""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from runner.core.errors import ClaimLost, Conflict, NotFound, OutputGone
from runner.core.jobs import Claim, Job
from runner.core.ledger import AccountKey, Usage
from runner.journal.acknowledged_writes import Logs
from runner.providers.records import NewRun
from runner.providers.redis import keys, outages
from runner.providers.redis.batches import Batches
from runner.providers.redis.connection import connect, patient
from runner.providers.redis.envelope import DIRECT
from runner.providers.redis.forks import create, position
from runner.providers.redis.rate_limit import RunPace
from runner.providers.redis.restored_store import LostWrites
from runner.providers.redis.store import ClaimedTask
from runner.providers.redis.workers import Workers
from runner.testing import RedisServer

from ...support.soak import in_soak
from .conftest import Clock, LossyLine
from .driver import QUEUE, Driver, plan_of, task_of


class Work:
    """Does the tasks of a run, with two steps each, as two workers would, and keeps its own account of what it did."""

    def __init__(self, server: RedisServer, redis: Redis, clock: Clock) -> None:
        self.redis, self.clock = redis, clock
        self.clients = connect(server.url), patient(server.url)
        self.line = LossyLine(self.clients[1])
        self.reset()

    def reset(self) -> None:
        """Begin anew, with an empty store."""
        self.driver = Driver(self.clients[1], self.line)
        self.driver.workers = Workers(self.clients[0])
        self.logs = Logs(1)
        self.done: Counter[tuple[str, str, str]] = Counter()
        self.beats = dict.fromkeys(("w0", "w1"), 0)
        self.tasks: dict[int, ClaimedTask] = {}

    def close(self) -> None:
        self.line.close()
        for client in self.clients:
            client.close()

    def begin(self, claim: Claim, *steps: str) -> ClaimedTask:
        """Do those of these steps that are not recorded."""
        task = self.tasks.setdefault(id(claim), task_of(self.driver, self.logs, claim))
        for step in steps:
            if step not in claim.recorded:
                self.done[claim.job.branch, claim.job.task, step] += 1
                task.record_step(step, "1", replayed=0, entry=GPT, usage=Usage(5, 2))
        return task

    def end(self, claim: Claim, *steps: str) -> None:
        """Do the rest, and commit it. Who lost the claim stops, as does who finds nothing to work with."""
        with contextlib.suppress(ClaimLost):
            task = self.begin(claim)
            try:  # as the engine does
                unlocks = self.driver.runs.branch_plan(claim.job.run_id, claim.job.branch).dependents[claim.job.task]
                if gone := [task for task in NEEDS[claim.job.task] if task not in claim.context]:
                    raise OutputGone(gone)
            except NotFound:  # its run is gone
                return
            except (Conflict, OutputGone) as error:
                task.fail(str(error), replayed=0)
            else:
                self.begin(claim, *steps).commit(f'{{"raw":"{claim.job.task}"}}', unlocks, replayed=0)

    def a_while(self) -> None:
        """Ten seconds of what leader and workers do, and of all jobs that are sent."""
        workers = self.driver.workers
        self.clock.go_on(10_000)
        workers.relist(0)
        workers.check_runs(0)
        for worker, number in self.beats.items():
            beat = workers.beat(worker, 60_000)
            if not beat.stood:
                beat = workers.beat(worker, 60_000, "{}")
            if beat.number <= number:
                LostWrites(worker)(workers.client, self.logs.claims)
            self.beats[worker] = beat.number
            for held in beat.claims:
                workers.take_back(worker, held, reason="no process performs it")
        workers.move_due()
        workers.redeliver(1000)
        for job in workers.outbox():
            workers.sent(job)
            self.take(job)
        for job in self.driver.jobs():
            self.take(job)

    def take(self, job: Job) -> None:
        claim = self.driver.claim(job)
        if isinstance(claim, Claim):
            self.end(claim, "s#1", "s#2")

    def outcome(self, branch: str) -> str:
        """How it stands there, and why."""
        try:
            self.driver.runs.get("r-1")
            found = self.driver.runs.branch("r-1", branch)
        except NotFound:
            return "gone: "
        return f"{found.status.value}: {found.error}"

    @property
    def again(self) -> int:
        return self.done.total() - len(self.done)


GPT = AccountKey("model", "A", "gpt")
PLAN = plan_of("a", "b", "c: a b", "d: c")
NEEDS = {task.key: task.context for task in PLAN.tasks}
MOMENTS = ["sent", "claimed", "half", "died", "asked", "delayed", "forked", "batched", "relayed"]
SOME = ["half", "died"]


def arranged(work: Work, moment: str) -> list[Claim]:
    """A run that is so far. Returns the claims of those who are at work on it, each after its first step."""
    driver = work.driver
    RunPace(work.redis, "r-1").acquire([("crew", 2)])
    driver.workers.elect("w0", "", 60_000)
    driver.workers.watch(60)
    driver.workers.clients(["openai"], 60)
    driver.workers.use_processes(60)
    fields = {"checkpoint_on": ",*,"}
    if moment == "batched":
        driver.runs.put_bundle("sha", b"code")
        fields = {
            **{"crew": "many", "adapter": "native", "bundle": "sha", "module": "crew", "attr": "crew"},
            **{"plan": PLAN.digest, "queue": QUEUE, "keep": "600000", "checkpoint_on": ",*,", "max_checkpoints": "0"},
            **{"envelope": DIRECT, "inputs": "{}"},
        }
        Batches(work.redis).create("b-1", PLAN, fields, [NewRun("r-1", 1, "{}"), NewRun("r-0", 2, "{}")])
        driver.runs.cancel("r-0", "enough")
    else:
        driver.submit(PLAN, **fields, **({"envelope": ""} if moment == "relayed" else {}))
    if moment == "forked":
        for _ in range(2):
            work.a_while()
        where = position(work.redis, "r-1", checkpoint=driver.runs.checkpoints("r-1", "main")[-4].id)
        create(work.redis, where, "f", rerun=frozenset(("c", "d")), kept=frozenset(), edits={}, overrides={"x": 1})
    if moment in ("sent", "relayed"):
        return []
    claims = driver.take()
    for claim in claims.values():
        work.begin(claim, "s#1").append_event("llm_call_started", "a", trigger="llm_call_started")
    if moment in ("half", "asked", "delayed"):
        work.end(claims.pop("a"), "s#2")
    if moment == "asked":
        work.begin(claims.pop("b")).ask("q#1", '"what?"', replayed=0)
    if moment == "delayed":
        work.begin(claims.pop("b")).retry(1.0, "it raised", replayed=0)
    return [*claims.values()]


SPARE = "completed"
GONE_PLAN = r"failed: task '.': the (plan|code) of run r-1 is no longer in the store: submit the crew again"
NEXT = "failed: nothing of branch '.*' is in flight: what says which of its tasks come next is gone from the store"
FATES: dict[str, str] = {
    "run_key": "gone",
    "branch_key": "completed|failed: branch '(main|f)' is gone from the store",  # the fork goes on without main
    "task_key": "failed: task '.': its record is gone from the store",
    "journal_key": SPARE,  # what is lost with it is done again
    "steps_key": SPARE,
    "journals_key": SPARE,
    "outputs_key": "failed: (task 'c': the output of task 'a' is|the outputs of . of its tasks are) gone from",
    "commit_log_key": SPARE,
    "waits_key": NEXT,
    "open_key": f"completed|{NEXT}",  # who is at work on the last of them goes on
    "checkpoints_key": SPARE,
    "lineage_key": SPARE,
    "plan_key": GONE_PLAN,
    "ledger_key": SPARE,
    "pace_key": SPARE,
    "events_key": SPARE,
    "branches_key": SPARE,
    "runs_key": SPARE,
    "active_key": SPARE,
    "expiring_key": SPARE,
    "queued_key": SPARE,
    "due_key": SPARE,
    "outbox_key": SPARE,
    "workers_key": SPARE,
    "worker_key": SPARE,
    "claims_key": SPARE,
    "leader_key": SPARE,
    "monitors_key": SPARE,
    "clients_key": SPARE,
    "processes_key": SPARE,
    "bundle_key": GONE_PLAN,
    "batch_key": SPARE,
    "batch_runs_key": SPARE,
    "batch_ended_key": SPARE,
}
"""How a run may end of which such a key is gone, or overwritten with another type. It waits only for who was asked."""

ELSEWHERE = {
    "copy_key": "there within a script only",
    "mending_key": "see `test_overwritten`",
    "partition_key": "of several stores",
    "shared_key": "of plans that grow: see `test_flow_fates`",
    **dict.fromkeys(("entries_key", "chains_key", "counter_key", "held_key"), "of states, not of runs"),
}


def kind_of(name: str) -> str:
    """The template of a key; "" of one that is another run's, or none of ours."""
    found = {of: match.groupdict() for of, pattern in keys.patterns().items() if (match := pattern.fullmatch(name))}
    return next((of for of, parts in found.items() if parts.get("run_id", "r-1") == "r-1"), "")


@pytest.fixture
def work(server: RedisServer, redis: Redis, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    monkeypatch.setattr(outages, "MENDED", 10.0)
    one = Work(server, redis, clock)
    yield one
    one.close()


def test_each_key_has_a_fate_and_is_there_at_some_moment(work: Work, redis: Redis, clock: Clock) -> None:
    met = set[str]()
    for moment in MOMENTS:
        redis.flushall()
        clock.reset()
        work.reset()
        arranged(work, moment)
        met |= {kind_of(name) for name in redis.scan_iter()}
    assert met - {""} == FATES.keys()
    assert FATES.keys() | ELSEWHERE.keys() == keys.KEYS.keys()


def test_a_run_that_waits_for_a_person_is_listed_again_where_the_index_of_active_runs_is_gone(
    work: Work, redis: Redis
) -> None:
    for claim in arranged(work, "asked"):
        work.end(claim, "s#2")
    active = keys.key("active_key", home=keys.HOME)
    before = redis.zrange(active, 0, -1, withscores=True)
    redis.delete(active)
    work.a_while()
    assert redis.zrange(active, 0, -1, withscores=True) == before != []
    redis.delete(keys.key("task_key", branch_key=keys.branch_key("r-1", "main"), name="b"))
    work.a_while()
    assert re.match(FATES["task_key"], work.outcome("main"))


def overwritten(redis: Redis, name: str) -> None:
    """It holds what is of another type."""
    is_text = redis.type(name) == "string"
    redis.delete(name)
    if is_text:
        redis.rpush(name, "somebody else's")
    else:
        redis.set(name, "somebody else's")


@pytest.mark.parametrize("moment", [*SOME, *in_soak(*(moment for moment in MOMENTS if moment not in SOME))])
@pytest.mark.parametrize("harm", [Redis.delete, overwritten], ids=["gone", "overwritten"])
def test_whichever_key_is_gone_or_overwritten_the_run_ends_as_it_must_and_what_is_done_again_is_counted(
    work: Work, redis: Redis, clock: Clock, harm: Callable[[Redis, str], object], moment: str
) -> None:
    names, wrong = [""], list[tuple[str, str]]()
    for number in itertools.count():
        redis.flushall()
        clock.reset()
        work.reset()
        claims = arranged(work, moment)
        if number == 0:
            names = sorted(name for name in redis.scan_iter() if kind_of(name))
        if number == len(names):
            break
        harm(redis, names[number])
        if moment == "died":
            work.driver.workers.reap("w0", process="p0", reason="its process died", max_attempts=5)
        else:
            for claim in claims:
                work.end(claim, "s#2")
        for _ in range(6):
            work.a_while()
        outcome = work.outcome("f" if moment == "forked" else "main")
        asks = outcome == "waiting: " and moment == "asked"
        if not asks and not re.match(FATES[kind_of(names[number])], outcome):
            wrong.append((names[number], outcome))
        if asks != bool(redis.zcard(keys.key("active_key", home=keys.HOME))):
            wrong.append((names[number], "it is not looked at" if asks else "it is active still"))
        if not outcome.startswith("gone") and work.again > work.driver.runs.get("r-1").in_doubt:
            wrong.append((names[number], f"{work.again} done again"))
        if work.again and "journal" not in names[number]:
            wrong.append((names[number], f"{work.again} done again"))
    assert wrong == []
