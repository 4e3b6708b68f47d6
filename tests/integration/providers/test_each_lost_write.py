"""Each part of what `find_lost_writes.lua` decides by, on a store that is made to stand so."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from runner.journal.acknowledged_writes import Acknowledged
from runner.providers.redis import keys, scripts
from runner.providers.redis.restored_store import LostWrites

from .driver import Driver, plan_of
from .others import refused, somebody_elses

RUN = "r-1"
OURS, EARLIER, LATER = 50, 40, 60  #: tokens of the claim that is looked at, and of others
KEPT, UNCLEAR, COUNTED = ["kept"], ["unclear"], ["counted"]
STEPS = ("one", "two", "three")


def call(many: int = 1) -> list[Any]:
    """Calls of a model, as an entry of the account."""
    return ["model", "A", "gpt", many, 0]


def forgotten(steps: int, *, claim: bool = False) -> list[Any]:
    return ["forgotten", steps, int(claim)]


class Stand:
    """How the store stands, and what a worker remembers of a claim that it had."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.redis = driver, driver.redis
        driver.submit(plan_of("a", "b"), RUN)
        self.run, branch = keys.run_key(RUN), keys.branch_key(RUN, "main")
        self.task = keys.key("task_key", branch_key=branch, name="a")
        self.journal = keys.key("journal_key", branch_key=branch, name="a")
        self.outputs = keys.key("outputs_key", branch_key=branch)
        self.redis.hset(self.run, "token", LATER)

    def has(self, *, token: int = 0, claims: str = "", begun: str = "", journal: Sequence[str] = ()) -> "Stand":
        """The task is so far: who has it, who had it, what is under way, which steps are recorded."""
        about = {"token": token or "", "claims": claims, "begun": begun}
        self.redis.hset(self.task, mapping={field: value for field, value in about.items() if value})
        for step in journal:
            self.redis.hset(self.journal, step, "1")
        return self

    def is_done(self, by: int, of: str | None = None) -> "Stand":
        """The task is committed. (Versions of before did not write of whose it was.)"""
        whose = "" if of is None else f'"of":"{of}",'
        self.redis.delete(self.task)
        self.redis.hset(self.outputs, "a", f'{{"seq":1,"token":{by},{whose}"raw":"a"}}')
        return self

    def says(self, *, ended: str = "", steps: int = 0, begun: str = "", again: Sequence[str] = (), later: int = 0,
             rewound: bool = False, still: bool = True, mixed: bool = False) -> list[Any]:  # fmt: skip
        """What the script finds. ``again`` are the steps that the ``later`` claim of this worker recorded as well."""
        recorded = {step: json.dumps([call()]) for step in STEPS[:steps]}
        if mixed:
            recorded["one"] = '[["step","","",1,0]]'
        claim = Acknowledged(f"{RUN}|main|a", OURS, recorded, steps, begun, ended)
        after = [replace(claim, token=later, steps=dict.fromkeys(again, "[]"))] if later else []
        slots = LostWrites("w0").slots(claim, after, rewound=rewound, still=still)
        return scripts.load("find_lost_writes")(self.redis, **slots)

    @property
    def begun(self) -> Any:
        return json.loads(self.redis.hget(self.task, "begun") or "[]")

    @property
    def in_doubt(self) -> int:
        return self.driver.runs.get(RUN).in_doubt

    @property
    def told(self) -> int:
        return len(self.driver.events(RUN, "store_rewound"))


@pytest.fixture
def stand(driver: Driver) -> Stand:
    return Stand(driver)


# -- of the claim itself


def test_of_a_run_that_is_gone_nothing_is_said(stand: Stand) -> None:
    stand.redis.delete(stand.run)
    assert stand.says(ended="commit", steps=1) == ["gone"]


def test_what_the_claim_committed_is_there(stand: Stand) -> None:
    stand.is_done(OURS)
    assert stand.says(ended="commit", steps=2) == KEPT


def test_a_commit_that_is_not_there_was_forgotten(stand: Stand) -> None:
    stand.has(claims=f"{OURS}:0,")
    assert [stand.says(ended="commit"), stand.says(ended="commit")] == [forgotten(0, claim=True), KEPT]
    assert stand.told == 1


def test_a_claim_that_was_given_up_and_holds_was_given_up_in_vain(stand: Stand) -> None:
    stand.has(token=OURS, claims=f"{OURS}:0,")
    assert stand.says() == KEPT
    assert stand.says(ended="release") == forgotten(0, claim=True)


@pytest.mark.parametrize("newest", [EARLIER, OURS])
def test_a_claim_whose_number_the_run_has_not_come_to_was_forgotten(stand: Stand, newest: int) -> None:
    stand.redis.hset(stand.run, "token", newest)
    assert stand.says() == (forgotten(0, claim=True) if newest == EARLIER else KEPT)


def test_a_task_that_an_earlier_claim_committed_was_never_to_be_claimed(stand: Stand) -> None:
    stand.is_done(EARLIER)
    assert stand.says(ended="retry", steps=1) == forgotten(1, claim=True)


def test_a_claim_that_was_forgotten_twice_is_counted_once(stand: Stand) -> None:
    """Though a step was found meanwhile that is missing."""
    stand.redis.hset(stand.run, "token", EARLIER)
    assert stand.says() == forgotten(0, claim=True)
    stand.redis.hset(stand.run, "token", LATER)
    assert stand.says(steps=1) == forgotten(1)
    stand.redis.hset(stand.run, "token", EARLIER)
    assert stand.says(steps=1) == KEPT


# -- of its steps


def test_what_is_in_the_journal_of_a_claim_that_holds_is_there(stand: Stand) -> None:
    stand.has(token=OURS, claims=f"{OURS}:0,", journal=STEPS[:2])
    assert stand.says(steps=2) == KEPT
    assert stand.says(steps=3) == forgotten(1)
    assert stand.in_doubt == 1


@pytest.mark.parametrize("since", ["the task is somebody's", "it was somebody's", "it is done"])
def test_what_a_later_claim_has_it_found_or_did_again(stand: Stand, since: str) -> None:
    if since == "the task is somebody's":  # of a version of before, which did not write whose it was
        stand.has(token=LATER, journal=STEPS[:1])
    elif since == "it was somebody's":  # so many had it that this claim is no longer among them
        stand.has(claims="".join(f"{LATER + i}:0," for i in range(16)), journal=STEPS[:1])
    else:
        stand.is_done(LATER)
    assert stand.says(ended="release", steps=1) == UNCLEAR
    # What else was forgotten of the run tells
    assert stand.says(ended="release", steps=1, rewound=True) == forgotten(1)


@pytest.mark.parametrize("ago", [1000, 60_000])
def test_what_was_forgotten_of_the_run_lately_tells(stand: Stand, clock: Any, ago: int) -> None:
    stand.has(token=LATER, journal=STEPS[:1])
    stand.redis.hset(stand.run, "rewound", clock.now - ago)
    assert stand.says(ended="release", steps=1) == (forgotten(1) if ago == 1000 else UNCLEAR)


def test_what_is_missing_was_forgotten_whoever_has_the_task(stand: Stand) -> None:
    stand.has(token=LATER)
    assert stand.says(ended="release", steps=1) == forgotten(1)


@pytest.mark.parametrize(("again", "found"), [((), KEPT), (("one",), forgotten(1))])
def test_what_the_same_worker_found_is_there_and_what_it_did_again_was_not(
    stand: Stand, again: Sequence[str], found: list[Any]
) -> None:
    stand.has(token=LATER, journal=STEPS[:1])
    assert stand.says(ended="release", steps=1, later=LATER, again=again, rewound=True) == found


@pytest.mark.parametrize("done", [False, True])
def test_where_the_next_claim_found_fewer_the_newest_were_forgotten(stand: Stand, done: bool) -> None:
    claims = f"{OURS}:0,{LATER}:2,"
    stand.is_done(LATER, claims) if done else stand.has(token=LATER, claims=claims, journal=STEPS)
    assert stand.says(ended="release", steps=3, later=LATER) == forgotten(1)


@pytest.mark.parametrize(("mixed", "many"), [(False, 1), (True, 2)])
def test_where_a_claim_not_remembered_here_found_fewer_so_many_were_or_each_may_have_been_if_they_differ(
    stand: Stand, mixed: bool, many: int
) -> None:
    """It is another worker's, or was given after the memory was read."""
    stand.has(claims=f"{OURS}:0,{LATER}:1,", journal=STEPS[:2])
    assert stand.says(ended="release", steps=2, mixed=mixed) == forgotten(many)


# -- of what was under way


def test_what_was_under_way_is_noted_again_where_the_claim_holds(stand: Stand) -> None:
    stand.has(token=OURS, claims=f"{OURS}:0,", begun=json.dumps([call()]))
    assert stand.says(begun=json.dumps([call(2)])) == KEPT
    assert stand.begun == [call(2)]


@pytest.mark.parametrize("many", [1, 2])
def test_what_was_under_way_and_is_counted_as_recorded_is_so_no_more(stand: Stand, many: int) -> None:
    stand.has(token=OURS, claims=f"{OURS}:0,", begun=json.dumps([call(many)]))
    assert stand.says(steps=1) == forgotten(1)
    assert stand.begun == ([call()] if many == 2 else [])


def test_a_step_that_was_forgotten_need_not_have_been_under_way(stand: Stand) -> None:
    stand.has(token=OURS, claims=f"{OURS}:0,", begun=json.dumps([["tool", "", "", 1, 0]]))
    assert stand.says(steps=1) == forgotten(1)
    assert stand.begun == [["tool", "", "", 1, 0]]


def test_what_is_under_way_under_another_claim_stays(stand: Stand) -> None:
    stand.has(token=LATER, claims=f"{OURS}:0,{LATER}:0,", begun=json.dumps([call()]))
    assert stand.says(ended="release") == KEPT
    assert stand.begun == [call()]


@pytest.mark.parametrize("certain", [True, False])
def test_what_was_under_way_when_the_claim_was_given_up_is_counted(stand: Stand, certain: bool) -> None:
    stand.has(claims=f"{OURS}:0,")
    begun = json.dumps([call()])
    if not certain:
        assert stand.says(begun=begun, still=False) == UNCLEAR
    assert stand.says(begun=begun, rewound=certain) == (forgotten(0) if certain else COUNTED)
    assert (stand.in_doubt, stand.told) == (1, int(certain))
    assert stand.says(begun=begun, rewound=certain) == KEPT


def test_what_was_seen_to_already_is_not_counted(stand: Stand) -> None:
    stand.has(claims=f"{OURS}:0,")
    stand.redis.hset(stand.run, f"begun:main|a|{OURS}", json.dumps([call(2)[:4]]))
    assert stand.says(begun=json.dumps([call()])) == KEPT
    assert stand.in_doubt == 0


def test_what_cannot_be_told_is_not_counted(stand: Stand) -> None:
    with somebody_elses(stand.driver, keys.key("events_key", run=stand.run)), refused(stand.driver):
        stand.says(steps=1)
    assert stand.says(steps=1) == forgotten(1)


@pytest.mark.parametrize("has", [0, EARLIER, LATER])
def test_only_a_claim_that_holds_has_anything_noted_again(stand: Stand, has: int) -> None:
    """What the claim that holds by now began is its own."""
    stand.has(token=has, claims=f"{OURS}:0,{LATER}:0,", begun=json.dumps([call(2)]))
    before = stand.redis.hgetall(stand.task)
    stand.says(begun=json.dumps([call()]))
    assert stand.redis.hgetall(stand.task) == before


def test_where_the_next_claim_found_all_nothing_is_unclear(stand: Stand) -> None:
    stand.has(token=LATER, claims=f"{OURS}:0,{LATER}:1,")
    assert stand.says(steps=1) == KEPT
