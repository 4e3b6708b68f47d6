"""A store that went back in time: what it forgot is not taken for what comes after."""

from collections.abc import Callable
from typing import Any

import pytest

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim
from runner.core.ledger import STEP, AccountKey, Usage
from runner.core.settings import WorkerSettings
from runner.journal import acknowledged_writes, shared_memory
from runner.journal.acknowledged_writes import Acknowledged, Log, Logs
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.redis.restored_store import LostWrites
from runner.providers.redis.store import ClaimedTask
from runner.tasks.heartbeat import Heartbeat

from .driver import Driver, plan_of, task_of

GPT = AccountKey("model", "A", "gpt")


def test_no_token_is_given_twice(server: Any, driver: Driver, clock: Any, backup: Callable[[str], Any]) -> None:
    # Given a claim that the store forgets
    driver.submit(plan_of("a"))
    (job,) = driver.jobs()
    before = backup(server.url)
    older = driver.claim(job)
    before.restore()
    clock.go_on(1)
    # When another worker is given the task, a millisecond later
    newer = driver.claim(job, "w1", "p1")
    # Then what the first one writes late is refused, and what the second one writes is not taken for the first one's
    with pytest.raises(ClaimLost):
        driver.task(older).record_step("s", "1", replayed=0)
    assert driver.commit(newer) == "completed"
    with pytest.raises(ClaimLost):
        driver.commit(older)


def test_what_is_in_doubt_counts_once(server: Any, driver: Driver, logs: Logs, backup: Callable[[str], Any]) -> None:
    # Given a step recorded and a call of a model under way, when the backup is taken
    run = driver.submit(plan_of("a"))
    claim = driver.take("a")["a"]
    task = task_of(driver, logs, claim)
    task.begin_step()
    task.record_step("one", "1", replayed=0)
    task.begin_step(GPT)
    task.note("log", "what was begun has come to the store")
    before = backup(server.url)
    # When the call is recorded, and one more, another is made, and it is all forgotten
    for step in ("two", "three"):
        task.record_step(step, "2", replayed=0, entry=GPT, usage=Usage(10, 1))
        task.begin_step(GPT)
    before.restore()
    lost_writes = LostWrites("w0")
    for _ in range(2):  # a second look finds nothing new
        lost_writes(driver.redis, logs.claims)
    # Then each call that was answered and forgotten is in doubt, the one under way is not: it goes on
    told = driver.events(run, "store_rewound")
    assert [(e["task"], e["forgotten"], e["steps"]) for e in told] == [("a", "steps", "2")]
    record = driver.runs.get(run)
    assert (record.ledger["paid"], record.ledger["in_doubt"]) == (1, 2)
    # And the claim, taken back, adds the one under way: its note was forgotten, and is noted again
    (held,) = driver.workers.beat("w0", 5000).claims
    assert driver.workers.take_back("w0", held, reason="no process performs it")
    assert driver.runs.get(run).ledger["in_doubt"] == 3


def test_an_attempt_that_ended_is_counted_too(
    server: Any, driver: Driver, clock: Any, logs: Logs, backup: Callable[[str], Any]
) -> None:
    """Also where the task was done again, and committed, before anybody looked: its journal went with that."""
    # Given a task whose first attempt records a step and fails, and whose second one replays it and commits
    run = driver.submit(plan_of("a"))
    before = backup(server.url)
    first = driver.take("a")["a"]
    task = task_of(driver, logs, first)
    task.begin_step(GPT)
    task.record_step("one", "1", replayed=0, entry=GPT)
    task.retry(0, "it failed", replayed=0)
    driver.workers.move_due()
    task_of(driver, logs, driver.take("a")["a"]).commit('{"raw": "a"}', (), replayed=1)
    # When the store forgets all of it, and another worker does the task
    before.restore()
    clock.go_on(1)
    (job,) = driver.jobs()
    elsewhere = driver.claim(job, "w1", "p1")
    driver.task(elsewhere).record_step("one", "1", replayed=0, entry=GPT)
    driver.commit(elsewhere)
    LostWrites("w0")(driver.redis, logs.claims)
    # Then the step that was done by both is in doubt once
    assert driver.runs.get(run).ledger["in_doubt"] == 1


def test_a_store_that_goes_back_twice_is_counted_twice(
    server: Any, driver: Driver, clock: Any, logs: Logs, backup: Callable[[str], Any]
) -> None:
    """What was counted after the first time is forgotten with the second: the same is missing again, and counted."""
    run = driver.submit(plan_of("a", "b"))
    before = backup(server.url)
    for done in (1, 2):
        clock.go_on(1)
        task = task_of(driver, logs, driver.take("a")["a"])
        task.record_step("one", "1", replayed=0, entry=GPT)
        task.commit('{"raw": "a"}', (), replayed=0)
        before.restore()
        LostWrites("w0")(driver.redis, logs.claims)
        LostWrites("w0")(driver.redis, logs.claims)
        assert driver.runs.get(run).ledger["in_doubt"] == done


def test_a_task_that_an_older_claim_committed_was_never_to_be_claimed(
    server: Any, driver: Driver, clock: Any, logs: Logs, backup: Callable[[str], Any]
) -> None:
    """Back to one history and forth to another: what was done between the two is in doubt."""
    run = driver.submit(plan_of("a", "b"))
    before = backup(server.url)
    driver.commit(driver.take("a")["a"])
    after = backup(server.url)
    before.restore()
    clock.go_on(1)
    task = task_of(driver, logs, driver.take("a")["a"])
    task.begin_step(GPT)
    task.record_step("one", "1", replayed=0, entry=GPT)
    task.begin_step(GPT)
    task.note("log", "under way")
    after.restore()
    LostWrites("w0")(driver.redis, logs.claims)
    assert driver.runs.get(run).ledger["in_doubt"] == 2


def commit(driver: Driver, task: ClaimedTask) -> None:
    task.commit('{"raw": "a"}', (), replayed=0)


def release(driver: Driver, task: ClaimedTask) -> None:
    task.release(replayed=0)


def hand_on(driver: Driver, task: ClaimedTask) -> None:
    task.release(replayed=0)
    (job,) = [job for job in driver.jobs() if job.task == "a"]
    assert isinstance(driver.claim(job, "w1", "p2"), Claim)


def hold(driver: Driver, task: ClaimedTask) -> None:
    """It goes on."""


@pytest.mark.parametrize("looks", ["before", "since", "not at all"])
@pytest.mark.parametrize("together", [False, True])
def test_what_the_store_forgot_under_a_claim_that_commits_is_in_doubt(
    server: Any, driver: Driver, logs: Logs, backup: Callable[[str], Any], looks: str, together: bool
) -> None:
    """Its process goes on as if nothing had been, and the commit takes the journal in which the steps are missing."""
    # Given a step that the store remembers, and two after it that it forgets
    run = driver.submit(plan_of("a", "b"))
    task = task_of(driver, logs, driver.take("a")["a"])
    task.begin_step()
    task.record_step("zero", "0", replayed=0)
    before = backup(server.url)
    if together:
        task.begin_steps([BegunStep(GPT), BegunStep()])
        task.record_steps([DoneStep("one", "1", GPT, Usage(10, 1)), DoneStep("two", "2")], replayed=0)
    else:
        for step, entry in (("one", GPT), ("two", STEP)):
            task.begin_step(entry)
            task.record_step(step, "1", replayed=0, entry=entry)
    before.restore()
    # When its process records another, and commits, whoever looks, and when
    task.begin_step(GPT)
    task.record_step("three", "3", replayed=0, entry=GPT)
    if looks == "before":
        LostWrites("w0")(driver.redis, logs.claims)
    commit(driver, task)
    counted = driver.runs.get(run).ledger
    if looks == "since":
        LostWrites("w0")(driver.redis, logs.claims)
    # Then those two are in doubt, once, and none is paid that is not in the account
    assert driver.runs.get(run).ledger == counted
    assert (counted["paid"], counted["in_doubt"]) == (2, 2)
    assert [(e["task"], e["forgotten"], e["steps"]) for e in driver.events(run, "store_rewound")] == [
        ("a", "steps", "2")
    ]


def test_a_claim_that_cannot_say_what_was_forgotten_commits(
    server: Any, driver: Driver, logs: Logs, backup: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = driver.submit(plan_of("a"))
    task = task_of(driver, logs, driver.take("a")["a"])
    before = backup(server.url)
    task.record_step("one", "1", replayed=0)
    before.restore()
    monkeypatch.setattr(acknowledged_writes, "WINDOW", -1)  # as if a minute ago
    commit(driver, task)
    assert driver.runs.get(run).status == "completed"


@pytest.mark.parametrize("then", [commit, release, hand_on, hold])
@pytest.mark.parametrize(
    "forgets", ["the claim", "a step", "a step and the release", "a step of a claim released since"]
)
@pytest.mark.parametrize("again", ["w0", "w1"])
def test_what_another_claim_did_again_before_anybody_looked_is_in_doubt(
    server: Any, driver: Driver, clock: Any, logs: Logs, backup: Callable[[str], Any],
    forgets: str, again: str, then: Callable[[Driver, ClaimedTask], None],
) -> None:  # fmt: skip
    """Nothing is missing any more: but the store knows with how many steps each claim began, and whose there were."""
    # Given a step of a claim that the store forgets
    run = driver.submit(plan_of("a", "b"))
    before = backup(server.url)
    task = task_of(driver, logs, driver.take("a")["a"])
    if forgets != "the claim":
        task.record_step("zero", "0", replayed=0)
        before = backup(server.url)
    task.record_step("one", "1", replayed=0, entry=GPT)
    if forgets == "a step and the release":
        task.release(replayed=0)
    before.restore()
    clock.go_on(1)
    # When the task comes to another claim
    if forgets == "a step of a claim released since":
        task.release(replayed=0)
    elif forgets != "the claim":
        driver.workers.reap("w0", process="p0", reason="it was slow", max_attempts=5)
    (job,) = [job for job in driver.jobs() if job.task == "a"]
    claim = driver.claim(job, again, "p1")
    assert isinstance(claim, Claim)
    assert sorted(claim.recorded) == ([] if forgets == "the claim" else ["zero"])
    # And that one does the step again, and more becomes of the task, before anybody looks
    other = task_of(driver, logs, claim) if again == "w0" else driver.task(claim)
    other.record_step("one", "1", replayed=len(claim.recorded), entry=GPT)
    then(driver, other)
    for _ in range(2):
        LostWrites("w0")(driver.redis, logs.claims)
    # Then it is in doubt, once; and so may be the one before it
    assert 1 <= driver.runs.get(run).ledger["in_doubt"] <= 1 + len(claim.recorded)
    assert len(driver.events(run, "store_rewound")) == 1


def test_what_one_worker_finds_that_another_one_did_again_is_in_doubt(
    server: Any, driver: Driver, clock: Any, logs: Logs, backup: Callable[[str], Any]
) -> None:
    """That the last claim is its own again, and did not do the step itself, says nothing."""
    # Given a step of a claim that the store forgets
    run = driver.submit(plan_of("a", "b"))
    before = backup(server.url)
    task_of(driver, logs, driver.take("a")["a"]).record_step("one", "1", replayed=0, entry=GPT)
    before.restore()
    clock.go_on(1)
    # When another worker does it again, and hands it on to the first one
    (job,) = [job for job in driver.jobs() if job.task == "a"]
    elsewhere = driver.task(driver.claim(job, "w1", "p1"))
    elsewhere.record_step("one", "1", replayed=0, entry=GPT)
    elsewhere.release(replayed=0)
    assert driver.take("a")["a"].recorded.keys() == {"one"}
    last = [claim for claim in driver.workers.beat("w0", 5000).claims if "|a" in claim.ref]
    logs.log(0).claimed(last[0].ref, last[0].token)
    for _ in range(2):
        LostWrites("w0")(driver.redis, logs.claims)
    # Then it is in doubt, once
    assert driver.runs.get(run).ledger["in_doubt"] == 1


def test_a_task_that_many_have_had_is_in_no_doubt(driver: Driver, logs: Logs) -> None:
    """Of whose it was, the store keeps the last ones."""
    run = driver.submit(plan_of("a"))
    for i in range(20):
        claim = driver.take("a")["a"]
        assert len(claim.recorded) == i
        task = task_of(driver, logs, claim)
        task.record_step(f"s{i}", "1", replayed=i, entry=GPT)
        task.release(replayed=0)
    LostWrites("w0")(driver.redis, logs.claims)
    commit(driver, task_of(driver, logs, driver.take("a")["a"]))
    LostWrites("w0")(driver.redis, logs.claims)
    assert driver.events(run, "store_rewound") == []
    assert driver.runs.get(run).ledger["in_doubt"] == 0


def test_what_is_there_is_in_no_doubt(driver: Driver, logs: Logs, caplog: pytest.LogCaptureFixture) -> None:
    """A store that was only away is believed, whatever became of the tasks."""
    run = driver.submit(plan_of("a", "b", "c", "d"))
    for name, claim in sorted(driver.take().items(), key=lambda item: "dabc".index(item[0])):
        task = task_of(driver, logs, claim)
        task.begin_step(GPT)
        task.record_step("one", "1", replayed=0, entry=GPT)
        if name == "a":
            task.commit('{"raw": "a"}', (), replayed=0)
        elif name == "b":
            task.release(replayed=0)
        elif name == "c":
            task.begin_step(GPT)
            task.note("log", "under way")
            driver.workers.reap("w0", process="p0", reason="it died", max_attempts=5)
    in_doubt = driver.runs.get(run).ledger["in_doubt"]
    LostWrites("w0")(driver.redis, logs.claims)
    assert driver.events(run, "store_rewound") == []
    assert driver.runs.get(run).ledger["in_doubt"] == in_doubt
    assert not caplog.records


@pytest.mark.parametrize("forked", [True, False])
def test_a_full_memory_forgets_the_oldest(forked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledged_writes, "LARGEST", acknowledged_writes.SMALLEST)
    logs = Logs(1, forked=forked)
    log = logs.log(0)
    for i in range(1000):
        claim = log.claimed(f"r|main|t{i}", i)
        claim.recorded(["s"], "", "")
        claim.recorded(["x" * acknowledged_writes.SMALLEST], "", "")
        claim.ended("commit")
    kept = logs.claims()
    assert 50 < len(kept) < 200
    assert kept[-1] == Acknowledged("r|main|t999", 999, {"s": ""}, 1, "", "commit")
    assert [claim.token for claim in kept] == list(range(1000 - len(kept), 1000))
    monkeypatch.setattr(acknowledged_writes, "WINDOW", -1)
    assert logs.claims() == []


@pytest.mark.parametrize("forked", [True, False])
def test_steps_whose_names_are_too_long_for_one_line_have_a_line_each(
    forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledged_writes, "LARGEST", acknowledged_writes.SMALLEST)
    logs = Logs(1, forked=forked)
    claim = logs.log(0).claimed("r|main|t", 1)
    names = ["\u67e5" * 60 + f"({n:016x})#1" for n in range(24)]
    claim.recorded(names[:-2], "", "")
    claim.recorded([names[-2], "x" * acknowledged_writes.SMALLEST, names[-1]], "", "")
    (kept,) = logs.claims()
    assert kept.recorded == len(names) + 1
    assert list(kept.steps) == names


def test_a_dead_process_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_memory", None)
    monkeypatch.setattr(shared_memory, "_logs", None)
    assert shared_memory.remembered() == []
    shared_memory.share(2)
    shared_memory.page(1, "7").claimed("r|main|a", 3)
    shared_memory.page(1, "8").claimed("r|main|b", 4)
    shared_memory.page(2, "9").claimed("r|main|c", 5)
    assert [claim.ref for claim in shared_memory.remembered()] == ["r|main|a", "r|main|b"]
    assert set(shared_memory.performed()) == {"8"}
    assert isinstance(shared_memory.page(None, "x").log, Log)


def test_it_is_counted_before_anybody_does_it_again(
    server: Any, driver: Driver, logs: Logs, backup: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the lease that was restored had lapsed, so that the worker's claims are taken back at once."""
    # Given a worker that has recorded a step since the backup
    told = list[int]()
    heartbeat = Heartbeat(
        server.url, "w0", WorkerSettings(lease=60.0), about={}, children=list, restart=print, free_slot=print,
        stop_here=lambda what: told.append(driver.runs.get(run).in_doubt), slots=lambda: 1, queue=None, taken=int,
    )  # fmt: skip
    monkeypatch.setattr(shared_memory, "remembered", logs.claims)
    run = driver.submit(plan_of("a"))
    task = task_of(driver, logs, driver.take("a")["a"])
    heartbeat._beat()
    before = backup(server.url)
    task.begin_step()
    task.record_step("one", "1", replayed=0)
    heartbeat._beat()
    # When the store goes back, and the supervisor finds that this worker did not beat for so long
    before.restore()
    driver.workers.reap("w0", reason="no heartbeat", max_attempts=3)
    heartbeat._beat()
    # Then the processes learn that their claims are lost when the step is counted
    assert told == [1]
