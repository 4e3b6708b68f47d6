"""The record of a step reserves the note of the next one: one script for a step, and what is in doubt stays exact."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim
from runner.core.ledger import STEP, AccountKey
from runner.core.output import dump
from runner.journal.acknowledged_writes import Logs
from runner.journal.recorder import BegunStep, DoneStep
from runner.providers.redis import claimed_steps
from runner.providers.redis.outages import DelayedCalls, IdleTimer
from runner.providers.redis.restored_store import LostWrites
from runner.providers.redis.store import ClaimedTask
from runner.testing import eventually

from .driver import Driver, plan_of

GPT, TOOL = AccountKey("model", "A", "gpt"), AccountKey("tool")


class Scene:
    """One task that has recorded one step; ``said`` is what its process last said of its calls."""

    def __init__(self, driver: Driver, *, watched: bool = True) -> None:
        self.driver, self.said, self.logs = driver, "", Logs(1)
        self.heard: list[str] = []
        self.run = driver.submit(plan_of("a"))
        claim = driver.take()["a"]
        log = self.logs.log(0)
        log.claimed(claim.job.ref, claim.token)
        self.claim: Claim = claim
        self.task = ClaimedTask(driver.line, claim, self._say if watched else None, log)
        self.steps = 0
        self.step()

    def _say(self, text: str) -> None:
        self.said = text
        self.heard.append(text)

    def step(self) -> None:
        self.steps += 1
        self.task.begin_step()
        self.task.record_step(f"s#{self.steps}", "1", replayed=0)

    def die(self, *, seen: bool = True, dead: bool = True) -> None:
        self.driver.line.settle()
        out = {"p0": self.said} if seen else None
        self.driver.workers.reap("w0", process="p0", reason="it died", max_attempts=9, out=out, dead=dead)

    @property
    def in_doubt(self) -> int:
        return self.driver.runs.get(self.run).in_doubt

    @property
    def begun(self) -> tuple[str, str]:
        self.driver.line.settle()
        key = next(key for key in self.driver.redis.scan_iter("*:task:a"))
        begun, reserved = self.driver.redis.hmget(key, "begun", "reserved")
        return begun or "", reserved or ""


@pytest.fixture
def scene(driver: Driver) -> Scene:
    return Scene(driver)


def test_who_can_say_nothing_reserves_nothing(driver: Driver) -> None:
    scene = Scene(driver, watched=False)
    assert scene.begun == ("", "")


@pytest.mark.parametrize("at_step", [False, True])
@pytest.mark.parametrize("known", ["it was seen to die", "it may live", "nobody saw it"])
def test_a_killed_process_leaves_in_doubt_what_it_was_at(scene: Scene, at_step: bool, known: str) -> None:
    if at_step:
        scene.task.begin_step()
    scene.die(seen=known != "nobody saw it", dead=known == "it was seen to die")
    # Where nothing is known it may be one too high, never too low
    assert scene.in_doubt == (1 if at_step or known != "it was seen to die" else 0)


@pytest.mark.parametrize("side_by_side", [1, 3])
def test_steps_side_by_side_are_all_in_doubt(scene: Scene, side_by_side: int) -> None:
    for _ in range(side_by_side):
        scene.task.begin_step()
    scene.task.record_step("s#2", "1", replayed=0)
    scene.task.begin_step(GPT, intent_only=True)
    scene.task.mark_sent(GPT)
    scene.die()
    assert scene.in_doubt == side_by_side - 1 + 1


ENDS: dict[str, Callable[[ClaimedTask], Any]] = {
    "committed": lambda task: task.commit(dump("done", None), [], replayed=0),
    "released": lambda task: task.release(replayed=0),
    "retried": lambda task: task.retry(0, "it raised", replayed=0),
    "failed": lambda task: task.fail("broken", replayed=0),
    "asked": lambda task: task.ask("q#1", "{}", replayed=0),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_task_that_ends_leaves_in_doubt_what_its_threads_are_at(scene: Scene, end: str, left: int) -> None:
    for _ in range(left):
        scene.task.begin_step()
    ENDS[end](scene.task)
    assert scene.in_doubt == left


def test_a_step_that_raised_leaves_its_note_to_the_next(scene: Scene, redis: Redis) -> None:
    noted = scene.begun
    for _ in range(3):
        scene.task.begin_step()
        scene.task.drop_step()
    assert scene.begun == noted
    scene.die()
    assert scene.in_doubt == 0


def test_an_answer_that_was_lost_is_asked_for_again(scene: Scene) -> None:
    scene.task.begin_step()
    scene.driver.line.lose = 1
    scene.task.record_step("s#2", "1", replayed=0)
    assert scene.begun[1] == "1"
    scene.task.begin_step()
    scene.die()
    assert (scene.in_doubt, scene.driver.runs.get(scene.run).paid) == (1, 2)


def test_a_process_that_froze_begins_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.die(dead=False)
    assert scene.in_doubt == 1
    scene.task.begin_step()  # a moment later: that is the one that was counted
    with pytest.raises(ClaimLost):
        scene.task.record_step("s#2", "1", replayed=0)
    monkeypatch.setattr(claimed_steps, "AWAY", -1)
    with pytest.raises(ClaimLost):
        scene.task.begin_step()
    assert scene.in_doubt == 1


def test_the_note_is_withdrawn_when_no_step_comes(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimed_steps, "AWAY", 0.2)
    monkeypatch.setattr(claimed_steps, "idle_timer", IdleTimer(DelayedCalls()))
    scene = Scene(driver)
    eventually(lambda: scene.task._reserved is None, why="the note is withdrawn")
    assert scene.begun == ("", "")
    scene.die(seen=False)
    assert scene.in_doubt == 0


def test_what_a_restored_store_forgot_is_noted_again(scene: Scene, redis: Redis) -> None:
    """The note was reserved by a record that is gone: a kill in the step that begins on it still counts."""
    scene.step()
    key = next(key for key in redis.scan_iter("*:task:a"))
    redis.hset(key, mapping={"begun": "", "reserved": ""})
    LostWrites("w0")(redis, scene.logs.claims)
    scene.task.begin_step()
    scene.die(seen=False)
    assert scene.in_doubt == 1


def test_it_is_withdrawn_between_two_commands_of_the_connection(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its task is dropped, and the process asks for the next one."""
    monkeypatch.setattr(claimed_steps, "idle_timer", IdleTimer(lambda *_: True))
    scene = Scene(driver)
    monkeypatch.setattr(claimed_steps, "AWAY", -1)
    with driver.line.lock:  # a command is on its way
        withdrawing = threading.Thread(target=scene.task._withdraw)
        withdrawing.start()
        withdrawing.join(0.05)
        assert withdrawing.is_alive()
    withdrawing.join(5)
    assert scene.begun == ("", "")


def test_where_steps_come_the_look_for_the_next_waits_for_no_command(scene: Scene) -> None:
    found: list[bool] = []
    with scene.driver.line.lock:  # a command is on its way
        looking = threading.Thread(target=lambda: found.append(scene.task._withdraw()))
        looking.start()
        looking.join(10)
        assert found == [False]


# -- what leaves: its note is sent ahead where it can be read that it left


@pytest.mark.parametrize("entry", [GPT, TOOL])
@pytest.mark.parametrize("arrives", ["the note arrived", "the note was lost"])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_of_what_was_noted_ahead_what_left_is_in_doubt(
    scene: Scene, entry: AccountKey, arrives: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if arrives == "the note was lost":
        monkeypatch.setattr(scene.driver.line, "send_nowait", lambda *_: None)
    for _ in range(3):
        scene.task.begin_step(entry, intent_only=True)
    for _ in range(left):
        scene.task.mark_sent(entry)
    scene.die()
    run = scene.driver.runs.get(scene.run)
    assert (run.in_doubt, run.tools_in_doubt) == ((left, 0) if entry is GPT else (0, left))
    assert run.replayed_tokens == 0


@pytest.mark.parametrize("entry", [GPT, TOOL])
def test_a_record_that_nobody_heard_of_is_in_no_doubt(scene: Scene, entry: AccountKey) -> None:
    """What is said of a process that dies before it hears: one left, and that is recorded."""
    scene.task.begin_step(entry, intent_only=True)
    scene.task.mark_sent(entry)
    noted = scene.said
    scene.task.record_step("s#2", "1", replayed=0, entry=entry)
    left = json.loads(scene.said.partition(" ")[2])
    assert left == json.loads(noted.partition(" ")[2])[:1], "nothing is out any more"
    confirmed = [one for one in scene.heard if one.endswith(f'"{entry.model}", 1, 0]]')]
    assert confirmed, "before the record it said that the note is there"
    scene.said = confirmed[-1]
    scene.die()
    run = scene.driver.runs.get(scene.run)
    assert (run.in_doubt, run.tools_in_doubt) == (0, 0)


@pytest.mark.parametrize("refused", ["once", "and its line is lost"])
def test_a_note_that_the_store_did_not_take_is_there_before_the_record(scene: Scene, refused: str) -> None:
    if refused == "once":
        scene.driver.redis.script_flush()
    scene.task.begin_step(GPT, intent_only=True)
    scene.task.mark_sent(GPT)
    if refused != "once":
        scene.driver.line.close()
    assert '"gpt", 1, 1]' in scene.said
    scene.task.record_step("s#2", "1", replayed=0, entry=GPT)
    scene.task.begin_step(GPT, intent_only=True)
    scene.task.mark_sent(GPT)
    scene.die()
    run = scene.driver.runs.get(scene.run)
    assert (run.in_doubt, run.paid) == (1, 2)


def test_a_call_of_a_claim_that_is_lost_is_in_doubt(scene: Scene) -> None:
    """It is made all the same, where the store was heard a moment ago."""
    scene.die()
    scene.task.begin_step(GPT, intent_only=True)
    scene.task.mark_sent(GPT)
    scene.driver.line.settle()
    assert scene.in_doubt == 1
    with pytest.raises(ClaimLost):
        scene.task.record_step("s#2", "1", replayed=0, entry=GPT)
    assert scene.in_doubt == 1


def test_where_nobody_can_read_what_left_its_note_is_waited_for(driver: Driver) -> None:
    scene = Scene(driver, watched=False)
    scene.task.begin_step(GPT, intent_only=True)
    assert not driver.line._unread


def test_what_an_older_process_said_counts_its_tools_as_they_were_noted(scene: Scene) -> None:
    scene.task.begin_step(TOOL)
    scene.said = f"{scene.claim.token} []"
    scene.die()
    assert scene.driver.runs.get(scene.run).tools_in_doubt == 1


# -- what leaves, begun on the note that was reserved with the record before it


def call(scene: Scene, entry: AccountKey) -> None:
    scene.steps += 1
    scene.task.begin_step(entry, intent_only=True)
    scene.task.mark_sent(entry)
    scene.task.record_step(f"s#{scene.steps}", "1", replayed=0, entry=entry)


def in_doubt(scene: Scene) -> tuple[int, int]:
    run = scene.driver.runs.get(scene.run)
    return run.in_doubt, run.tools_in_doubt


def scripts_run(redis: Redis) -> int:
    return int(redis.info("commandstats")["cmdstat_evalsha"]["calls"])


@pytest.mark.parametrize("order", [[GPT], [TOOL], [GPT, TOOL], [GPT, STEP, TOOL]])
def test_what_follows_as_it_did_before_is_one_command(scene: Scene, redis: Redis, order: list[AccountKey]) -> None:
    for entry in order * 2:
        call(scene, entry)
    before = scripts_run(redis)
    for entry in order * 5:
        call(scene, entry)
    assert scripts_run(redis) == before + 5 * len(order)


KNOWN = {"it was seen to die": (True, True), "it may live": (True, False), "nobody saw it": (False, False)}


@pytest.mark.parametrize("entry", [GPT, TOOL])
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("at", ["recorded", "begun", "sent"])
def test_a_kill_leaves_in_doubt_the_call_that_left(scene: Scene, entry: AccountKey, known: str, at: str) -> None:
    call(scene, entry)
    call(scene, entry)
    assert json.loads(scene.begun[1]) == list(entry), "the note of the next one is reserved"
    if at != "recorded":
        scene.task.begin_step(entry, intent_only=True)
    if at == "sent":
        scene.task.mark_sent(entry)
    seen, dead = KNOWN[known]
    scene.die(seen=seen, dead=dead)
    # Where nothing is known it may be one too high, never too low
    many = 1 if at == "sent" or not seen else 0
    assert in_doubt(scene) == ((many, 0) if entry is GPT else (0, many))


@pytest.mark.parametrize("entry", [GPT, TOOL])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_task_that_ends_leaves_in_doubt_the_calls_that_left(
    scene: Scene, entry: AccountKey, end: str, left: int
) -> None:
    call(scene, entry)
    call(scene, entry)
    for _ in range(left):
        scene.task.begin_step(entry, intent_only=True)
        scene.task.mark_sent(entry)
    ENDS[end](scene.task)
    assert in_doubt(scene) == ((left, 0) if entry is GPT else (0, left))


def test_a_call_in_a_step_takes_no_note_that_is_reserved(scene: Scene) -> None:
    """It stands for the step around it, which the store is to be told."""
    call(scene, GPT)
    call(scene, GPT)
    scene.task.begin_step()
    scene.task.begin_step(GPT, supersedes=[STEP], intent_only=True)
    scene.task.mark_sent(GPT)
    scene.die()
    assert in_doubt(scene) == (1, 0)


def test_a_call_that_was_not_taken_leaves_its_note_to_the_next(scene: Scene) -> None:
    call(scene, GPT)
    call(scene, GPT)
    noted = scene.begun
    for _ in range(2):
        scene.task.begin_step(GPT, intent_only=True)
        scene.task.mark_sent(GPT)
        scene.task.drop_step(GPT)
    assert scene.begun == noted
    scene.die()
    assert in_doubt(scene) == (0, 0)


def test_where_the_record_was_lost_and_asked_for_again_the_call_that_follows_counts(scene: Scene) -> None:
    call(scene, GPT)
    scene.task.begin_step(GPT, intent_only=True)
    scene.task.mark_sent(GPT)
    scene.driver.line.lose = 1
    scene.task.record_step("again", "1", replayed=0, entry=GPT)
    scene.task.begin_step(GPT, intent_only=True)
    scene.task.mark_sent(GPT)
    scene.die()
    run = scene.driver.runs.get(scene.run)
    assert (run.in_doubt, run.paid) == (1, 3)


def test_a_name_too_long_to_be_said_is_reserved_no_note(scene: Scene) -> None:
    entry = AccountKey("model", "A" * 600, "gpt")
    call(scene, entry)
    call(scene, entry)
    assert scene.begun == ("", "")


# -- what begins and ends together


@pytest.mark.parametrize("entry", [STEP, GPT, TOOL])
@pytest.mark.parametrize("at", ["begun", "sent", "recorded", "recorded, its answer lost"])
def test_of_what_goes_together_each_is_in_doubt_once_or_not_at_all(scene: Scene, entry: AccountKey, at: str) -> None:
    before = scene.driver.runs.get(scene.run)
    scene.task.begin_steps([BegunStep(entry, intent_only=True)] * 3)
    if at != "begun" and entry != STEP:
        for _ in range(3):
            scene.task.mark_sent(entry)
    if at.startswith("recorded"):
        scene.driver.line.lose = int(at.endswith("lost"))
        scene.task.record_steps([DoneStep(f"t#{n}", "1", entry) for n in range(2)], replayed=0)
    scene.die()
    many = 1 if at.startswith("recorded") else 0 if at == "begun" and entry != STEP else 3
    assert in_doubt(scene) == ((0, many) if entry is TOOL else (many, 0))
    run = scene.driver.runs.get(scene.run)
    paid = (run.paid + run.tools_paid) - (before.paid + before.tools_paid)
    assert paid == (2 if at.startswith("recorded") else 0)


def test_several_that_begin_together_are_one_command(scene: Scene, redis: Redis) -> None:
    before = scripts_run(redis)
    scene.task.begin_steps([BegunStep(GPT, intent_only=True), BegunStep(TOOL, intent_only=True), BegunStep()])
    scene.driver.line.settle()
    assert scripts_run(redis) == before + 1
    assert json.loads(scene.begun[0]) == [["step", "", "", 1, 0], [*GPT, 1, 0], [*TOOL, 1, 0]]


def test_several_of_a_claim_that_is_lost_are_each_in_doubt(scene: Scene) -> None:
    scene.die()
    scene.task.begin_steps([BegunStep(GPT, intent_only=True)] * 3)
    for _ in range(3):
        scene.task.mark_sent(GPT)
    scene.driver.line.settle()
    assert in_doubt(scene) == (3, 0)
    with pytest.raises(ClaimLost):
        scene.task.record_steps([DoneStep(f"t#{n}", "1", GPT) for n in range(3)], replayed=0)
    assert in_doubt(scene) == (3, 0)
