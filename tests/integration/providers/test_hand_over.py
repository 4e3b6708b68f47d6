"""A worker that held many tasks dies: they are handed over in parts, at a cost that is linear in how many there are."""

import json
from typing import Any

import pytest
from redis import Redis

from runner.core.jobs import Job
from runner.providers.redis import keys
from runner.providers.redis.workers import AT_ONCE, Workers

from .driver import LEASE, QUEUE, Driver, plan_of

PLAN = plan_of("a")
SAID = "0 {}"  #: what had left a process of an earlier claim


class Counting:
    """A client that counts its scripts, and says what there was after each. ``fail_at`` is the one that is not sent."""

    def __init__(self, redis: "Redis[str]", fail_at: int = 0) -> None:
        self._redis, self._fail_at = redis, fail_at
        self.left: list[tuple[int, int]] = []  #: after each script: messages sent, claims still held
        self.said: list[int] = []  #: in each script: of how many processes it was told what had left them

    def execute_command(self, *command: Any) -> Any:
        if len(self.left) + 1 == self._fail_at:
            raise SystemExit
        self.said.append(sum(str(one).count(SAID) for one in command))
        answer = self._redis.execute_command(*command)
        claims = keys.key("claims_key", home=keys.home(), worker="w0")
        self.left.append((self._redis.llen(QUEUE), self._redis.hlen(claims)))
        return answer


def held(driver: Driver, many: int) -> None:
    """So many tasks in flight on w0, each in a run of its own; they may have been handed over before."""
    for n in range(many):
        if not driver.runs.existing([f"r-{n}"]):
            driver.submit(PLAN, f"r-{n}")
    for n, job in enumerate(driver.jobs()):
        driver.claim(job, process=f"p{n}")
    assert driver.workers.claimed("w0") == many


def commands(redis: "Redis[str]") -> int:
    return sum(int(one["calls"]) for name, one in redis.info("commandstats").items() if "config" not in name)


def reap(client: Counting, **how: Any) -> list[Job]:
    return Workers(client).reap("w0", reason="it is gone", max_attempts=5, **how)


def test_the_first_are_sent_before_the_last_are_looked_at(driver: Driver, redis: "Redis[str]") -> None:
    many = 2 * AT_ONCE + 7
    held(driver, many)
    client = Counting(redis)
    assert len(set(reap(client))) == many
    sent = [0, AT_ONCE, 2 * AT_ONCE, many]  # the first looks how many there are
    assert client.left == [(n, many - n) for n in sent]
    assert "w0" not in [one.id for one in driver.workers.registered()]
    assert sorted(job.attempt for job in driver.jobs()) == [2] * many


def test_of_what_had_left_its_processes_each_script_is_told_what_it_needs(driver: Driver, redis: "Redis[str]") -> None:
    many = 2 * AT_ONCE + 7
    held(driver, many)
    client = Counting(redis)
    reap(client, out={f"p{n}": SAID for n in range(many)}, dead=True)
    assert client.said == [many, AT_ONCE, AT_ONCE, 7]


def test_few_are_one_script(driver: Driver, redis: "Redis[str]") -> None:
    held(driver, AT_ONCE)
    client = Counting(redis)
    assert len(reap(client)) == AT_ONCE
    assert client.left == [(AT_ONCE, 0)]


def test_one_process_of_a_worker_that_holds_many_is_one_script(driver: Driver, redis: "Redis[str]") -> None:
    held(driver, 2 * AT_ONCE)
    client = Counting(redis)
    assert len(reap(client, process="p3")) == 1
    assert client.left == [(1, 2 * AT_ONCE - 1)]


def test_what_threads_of_a_process_hold_is_taken_back_when_that_died(driver: Driver, redis: "Redis[str]") -> None:
    for n, process in enumerate(("7", "7-0", "7-1", "77-0")):
        driver.submit(PLAN, f"r-{n}")
        driver.claim(next(driver.jobs()), process=process)
    # What one of them could not do is its own alone; what died with the process is all of it
    assert [job.run_id for job in reap(Counting(redis), process="7")] == ["r-0"]
    assert sorted(job.run_id for job in reap(Counting(redis), process="7", dead=True)) == ["r-1", "r-2"]
    assert driver.workers.claimed("w0") == 1


def test_what_it_costs_is_linear(driver: Driver, redis: "Redis[str]") -> None:
    costs = []
    for many in (2 * AT_ONCE, 4 * AT_ONCE, 6 * AT_ONCE):
        driver.workers.beat("w0", LEASE, "{}")
        held(driver, many)
        before = commands(redis)
        driver.workers.reap("w0", reason="it is gone", max_attempts=5)
        costs.append(commands(redis) - before)
    assert costs[2] - costs[1] == costs[1] - costs[0]


def test_no_script_keeps_the_server_from_others_for_long(driver: Driver, redis: "Redis[str]") -> None:
    class CountsInside(Counting):
        inside = [0]

        def execute_command(self, *command: Any) -> Any:
            before = commands(redis)
            answer = super().execute_command(*command)
            self.inside.append(commands(redis) - before)
            return answer

    held(driver, 4 * AT_ONCE)
    client = CountsInside(redis)
    reap(client)
    assert max(client.inside) <= 440  # a millisecond


@pytest.mark.parametrize("part", [2, 3])
def test_who_dies_on_the_way_leaves_the_rest_to_the_next(driver: Driver, redis: "Redis[str]", part: int) -> None:
    many = 2 * AT_ONCE
    held(driver, many)
    with pytest.raises(SystemExit):
        reap(Counting(redis, fail_at=part))
    # It is still known, as gone as before
    assert "w0" in [one.id for one in driver.workers.registered()]
    assert len(reap(Counting(redis))) == many - (part - 2) * AT_ONCE
    jobs = list(driver.jobs())
    assert len({job.run_id for job in jobs}) == len(jobs) == many
    assert driver.workers.claimed("w0") == 0


def test_one_that_comes_back_keeps_what_is_left_and_is_told(driver: Driver, redis: "Redis[str]", clock: Any) -> None:
    many = 3 * AT_ONCE
    held(driver, many)
    clock.go_on(LEASE + 1)

    class ComesBack(Counting):
        def execute_command(self, *command: Any) -> Any:
            answer = super().execute_command(*command)
            if len(self.left) == 2:
                driver.workers.beat("w0", LEASE)
            return answer

    assert len(reap(ComesBack(redis), only_lapsed=True)) == AT_ONCE
    beat = driver.workers.beat("w0", LEASE)
    assert (beat.stood, beat.recheck, len(beat.claims)) == (True, 1, many - AT_ONCE)


def test_a_look_at_known_workers_is_one_command(driver: Driver, redis: "Redis[str]") -> None:
    for n in range(20):
        driver.workers.beat(f"w{n}", LEASE, json.dumps({"n": n}))
    known = driver.workers.registered()
    assert len(known) == 20
    driver.workers.beat("w20", LEASE, json.dumps({"n": 20}))
    before = commands(redis)
    found = driver.workers.registered(known)
    assert commands(redis) - before == 2 + 1, "of the new one it is read what it said; INFO counts itself"
    assert {one.id: one.fields["n"] for one in found} == {f"w{n}": n for n in range(21)}
    known = found
    before = commands(redis)
    assert driver.workers.registered(known) == known
    assert commands(redis) - before == 1 + 1
