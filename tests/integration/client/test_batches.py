"""Many inputs: a stream of them, so many runs at once, and a submitter that may be killed."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from redis import Redis

from runner.client import Client, Prepared, prepare
from runner.core.errors import BadInput, Conflict, NotFound, UsageError
from runner.core.jobs import Claim, Job
from runner.providers.redis import keys
from runner.providers.redis.keys import queue_of
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.store import ClaimedTask, claim
from runner.providers.redis.waiting_client import StoreLost
from runner.providers.redis.workers import Workers

CREW = """
    from runner import Crew, Task
    crew = Crew(tasks=[Task(name="write", description="About {topic}", run=lambda ctx: "done")])
"""


@pytest.fixture
def read(write_crew: Any) -> Prepared:
    """A crew that needs a topic."""
    return prepare(str(write_crew(CREW)))


@pytest.fixture
def work(redis: Redis) -> Iterator[Callable[[], int]]:
    """Does what is queued, in this process. Gives how many runs were active at most."""
    line = PipelinedConnection(redis)
    Workers(redis).beat("w", 60_000, "{}")

    def do(fail: str = "") -> int:
        active = redis.zcard(keys.key("active_key", home=keys.home()))
        while message := redis.rpop(queue_of("runner")):
            given = json.loads(json.loads(message)["body"])[1]
            found = claim(
                line, Job(given["run"], given["branch"], given["task"], given["attempt"]), worker="w", process="p"
            )
            assert isinstance(found, Claim)
            if fail and found.inputs["topic"].startswith(fail):
                ClaimedTask(line, found).fail("it is bad", replayed=0)
            else:
                ClaimedTask(line, found).commit(json.dumps({"raw": f"on {found.inputs['topic']}"}), [], replayed=0)
        return active

    yield do
    line.close()


def topics(count: int) -> Iterator[dict[str, str]]:
    return ({"topic": f"t{number}"} for number in range(1, count + 1))


def test_so_many_are_active_and_the_inputs_come_as_they_are_needed(
    client: Client, read: Prepared, work: Any, redis: Redis, eventually: Any
) -> None:
    def work_when_submitted() -> None:
        eventually(lambda: redis.llen(queue_of("runner")) == 5, why="five are submitted")
        work()

    taken, given = [], {}
    inputs = ({"topic": f"t{taken.append(n) or n}"} for n in itertools.count(1))
    batch = iter(client.submit_many(read, inputs, at_once=5))
    for _ in range(6):
        helper = threading.Thread(target=work_when_submitted)
        helper.start()
        for number, result in itertools.islice(batch, 5):
            given[number] = result.result
        helper.join()
        assert len(taken) <= len(given) + 5
    assert given == {n: f"on t{n}" for n in range(1, 31)}


def test_a_batch_goes_on_where_its_submitter_was_killed(
    client: Client, read: Prepared, work: Any, redis: Redis, eventually: Any
) -> None:
    def work_when_submitted() -> None:
        eventually(lambda: redis.llen(queue_of("runner")) == 8, why="eight are submitted")
        work()

    first = iter(client.submit_many(read, topics(20), id="all of them", at_once=8))
    helper = threading.Thread(target=work_when_submitted)
    helper.start()
    next(first)  # and no more: eight were submitted, and are done
    helper.join()
    assert redis.zcard(keys.key("runs_key", home=keys.home())) == 8
    given = dict(drive(client.submit_many(read, topics(20), id="all of them", at_once=8), work))
    assert {number: result.result for number, result in given.items()} == {n: f"on t{n}" for n in range(1, 21)}
    runs = redis.zrange(keys.key("runs_key", home=keys.home()), 0, -1)
    assert sorted(runs) == sorted(result.run_id for result in given.values())
    # Once more, all is there
    assert len(list(client.submit_many(read, topics(20), id="all of them"))) == 20
    assert redis.zcard(keys.key("runs_key", home=keys.home())) == 20


def drive(batch: Any, work: Callable[..., int], **how: Any) -> list[Any]:
    """All of a batch, with somebody at work beside it."""
    over = threading.Event()

    def serve() -> None:
        while not over.wait(0.02):
            work(**how)

    helper = threading.Thread(target=serve)
    helper.start()
    try:
        return list(batch)
    finally:
        over.set()
        helper.join()


def test_those_that_failed_are_resumed(client: Client, read: Prepared, work: Any) -> None:
    batch = client.submit_many(read, topics(6), at_once=4)
    found = dict(drive(batch, work, fail="t3"))
    assert {number: result.status for number, result in found.items() if result.status != "completed"} == {3: "failed"}
    again = drive(client.resume_many(batch.id, keep_code=True), work)
    assert [(number, result.result) for number, result in again] == [(3, "on t3")]
    assert drive(client.resume_many(batch.id), work) == []
    with pytest.raises(UsageError, match="give one of them"):
        client.resume_many(batch.id, accept_code_change=True, keep_code=True)
    with pytest.raises(NotFound, match="no batch b-123456789012"):
        client.resume_many("b-123456789012")


def test_a_batch_that_has_begun_waits_for_the_store_wherever_that_goes(
    client: Client, read: Prepared, work: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []

    def losing(name: str, *calls: int) -> None:
        """Whose answer is lost at these of its calls."""
        real, counted = getattr(Client, name), itertools.count(1)

        def call(*given: Any, **how: Any) -> Any:
            answer = real(*given, **how)
            if next(counted) in calls:
                lost.append(name)
                raise StoreLost("it is away")
            return answer

        monkeypatch.setattr(Client, name, call)

    losing("accept", 2, 3, 4)
    batch = client.submit_many(read, topics(6), at_once=2)
    found = dict(drive(batch, partial(work, fail="t")))
    assert ({one.status for one in found.values()}, len(found)) == ({"failed"}, 6)
    assert redis.zcard(keys.key("runs_key", home=keys.home())) == 6
    losing("resume", 3, 5)
    again = drive(client.resume_many(batch.id, keep_code=True, at_once=2), work)
    assert sorted((number, result.result) for number, result in again) == [(n, f"on t{n}") for n in range(1, 7)]
    assert lost == [*["accept"] * 3, *["resume"] * 2]


def test_a_batch_is_known_by_its_id_to_whoever_asks(client: Client, read: Prepared, work: Any) -> None:
    batch = client.submit_many(read, list(topics(6)), at_once=4)
    found = dict(drive(batch, work, fail="t3"))
    again = client.batch(batch.id)
    assert dict(again) == found
    state = again.state()
    assert (state.status, state.total, state.submitted, state.left) == ("failed", 6, 6, 0)
    assert state.runs == {"completed": 5, "failed": 1}
    assert [(number, run.id) for number, run in state.listed] == [(3, found[3].run_id)]
    ledgers = [result.ledger for result in found.values()]
    assert state.ledger["paid"] == sum(one["paid"] for one in ledgers)
    assert state.ledger.keys() | {"by_tool"} == ledgers[0].keys()
    assert [(number, run.id) for number, run in again.runs(2)] == [(6, found[6].run_id), (5, found[5].run_id)]
    with pytest.raises(NotFound, match="no batch b-123456789012"):
        client.batch("b-123456789012")


def test_what_models_were_paid_in_a_batch_is_added_up(client: Client, read: Prepared, work: Any, redis: Redis) -> None:
    batch = client.submit_many(read, list(topics(3)), at_once=3)
    found = drive(batch, work)
    for number, result in found:
        run = keys.run_key(result.run_id)
        redis.hset(run, mapping={"paid": 2, "prompt_tokens": 10 * number, "completion_tokens": 1})
        redis.hset(keys.key("ledger_key", run=run), '["main","write","A","gpt-4o"]', f"[2,0,0,{10 * number},1,0]")
    ledger = batch.state().ledger
    assert {name: ledger[name] for name in ("paid", "prompt_tokens", "completion_tokens")} == {
        "paid": 6,
        "prompt_tokens": 60,
        "completion_tokens": 3,
    }
    (row,) = ledger["by"]
    assert (row["model"], row["calls"], row["prompt_tokens"], row["completion_tokens"]) == ("gpt-4o", 6, 60, 3)
    assert ledger["cost"] == row["cost"] > 0


def test_results_that_are_read_together_are_those_of_the_runs_by_themselves(
    client: Client, read: Prepared, work: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.client.batch.RESULTS", 4)
    batch = client.submit_many(read, list(topics(10)), at_once=10)
    ids = dict(sorted((number, result.run_id) for number, result in drive(batch, partial(work, fail="t9"))))
    called, forked, gone, lost = (ids[number] for number in (2, 5, 6, 7))
    run = keys.run_key(called)
    row = '["main","write","A","gpt-4o"]'
    redis.hset(run, mapping={"paid": 2, "prompt_tokens": 9, "tools_paid": 1, "tools_paid:look": 1})
    redis.hset(run, f"tokens{row}", "[4]")
    redis.hset(keys.key("ledger_key", run=run), mapping={'["other","write","A","gpt-4o"]': "[1,0,0,1,1,0]"})
    redis.hset(keys.key("ledger_key", run=run), row, "[2,0,0,9,1,0]")
    client.fork(forked, edits={"write": "edited"}).wait(10)
    redis.delete(keys.run_key(gone))
    redis.delete(keys.branch_key(lost, "main"))
    found = list(client.batch(batch.id))
    assert [number for number, _ in found] == list(ids), "in the order of their inputs"
    results = {result.run_id: result for _, result in found}
    assert (results.pop(gone).status, results.pop(lost).status) == ("failed", "failed")
    assert results == {run_id: client.run(run_id).result() for run_id in results}
    ledger = results[called].ledger
    assert [(one["branch"], one["cached_tokens"]) for one in ledger["by"]] == [("main", 4), ("other", 0)]
    assert ledger["by_tool"] == {"look": {"paid": 1, "replayed": 0, "in_doubt": 0}}


def test_a_batch_that_is_cancelled_submits_no_more_until_it_is_resumed(
    client: Client, read: Prepared, work: Any, redis: Redis, eventually: Any
) -> None:
    def cancel_when_submitted() -> None:
        eventually(lambda: redis.llen(queue_of("runner")) == 4, why="four are submitted")
        assert client.batch(first.id).cancel("enough") == 4

    first = client.submit_many(read, list(topics(10)), id="all", at_once=4)
    other = threading.Thread(target=cancel_when_submitted)
    other.start()
    ended = dict(first)
    other.join()
    assert {number: (result.status, result.error) for number, result in ended.items()} == dict.fromkeys(
        range(1, 5), ("cancelled", "enough")
    )
    state = first.state()
    assert (state.status, state.stopped, state.submitted, state.left) == ("cancelled", "enough", 4, 6)
    with pytest.raises(Conflict, match=f"is cancelled already: `runner resume {first.id}` resumes it"):
        first.cancel()
    # The same again has what there is, and submits nothing
    assert dict(client.submit_many(read, list(topics(10)), id="all", at_once=4)) == ended
    # Once it is resumed, the rest is submitted, too
    assert len(drive(client.resume_many(first.id), work)) == 4
    again = dict(drive(client.submit_many(read, list(topics(10)), id="all", at_once=4), work))
    assert {number: result.result for number, result in again.items()} == {n: f"on t{n}" for n in range(1, 11)}
    with pytest.raises(Conflict, match="is over: there is nothing to cancel"):
        first.cancel()
    assert first.why_stopped() == ""


def test_who_waits_for_a_batch_hears_of_what_is_submitted_meanwhile(
    client: Client, read: Prepared, work: Any, redis: Redis, eventually: Any
) -> None:
    inputs = list(topics(5))
    batch = client.submit_many(read, inputs, at_once=1)
    submitter = threading.Thread(target=lambda: drive(batch, work))
    submitter.start()
    eventually(lambda: redis.zcard(keys.key("runs_key", home=keys.home())) > 0, why="the first is submitted")
    found = dict(client.batch(batch.id))
    submitter.join()
    assert {number: result.result for number, result in found.items()} == {n: f"on t{n}" for n in range(1, 6)}


def test_who_waits_for_a_batch_can_stop_and_does_not_wait_for_a_submitter_that_died(
    client: Client, read: Prepared, work: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.client.batch.NEXT_WITHIN", 0.1)
    first = client.submit_many(read, list(topics(6)), at_once=3)
    assert first._begin(3)  # and is gone
    waiting = client.batch(first.id)
    threading.Timer(0.1, waiting.stop).start()
    assert (list(waiting), waiting.active) == ([], 3)
    work()
    late = client.batch(first.id)
    late.until = 0  # results that are there are not waited for
    found = dict(late)
    assert late.stopped  # more may be submitted
    assert found == dict(client.batch(first.id))
    assert found.keys() == {1, 2, 3}
    state = first.state()
    assert (state.status, state.submitted, state.left) == ("waiting", 3, 3)


def test_what_a_batch_shares_is_stored_once(client: Client, read: Prepared, work: Any, redis: Redis) -> None:
    found = drive(client.submit_many(read, topics(300), at_once=300), work)
    assert len(found) == 300
    assert not list(redis.scan_iter("*:plan", 1000))
    run = found[0][1].run_id
    assert client.store.runs.plan(run) == read.plan
    branch = client.fork(run, edits={"write": "edited"})
    assert branch.wait(10).result == "edited"
    assert [one.task for one in client.diff(run, "main", str(branch.branch)).tasks] == ["write"]
    assert [one.id for one in client.runs(limit=400)].count(run) == 1


def test_an_input_that_will_not_do_is_refused_when_it_comes(client: Client, read: Prepared, redis: Redis) -> None:
    with pytest.raises(BadInput, match="topic"):
        list(client.submit_many(read, [{}]))
    assert not list(redis.scan_iter("*:run:*"))


def test_an_id_that_another_run_has_is_no_batch_s(client: Client, read: Prepared, redis: Redis, work: Any) -> None:
    found = drive(client.submit_many(read, topics(1), id="x"), work)
    redis.hset(keys.run_key(found[0][1].run_id), "batch", "b-other")
    with pytest.raises(Conflict, match="is another run's"):
        list(client.submit_many(read, topics(1), id="x"))


def test_a_run_that_is_gone_from_the_store_failed_and_the_others_have_their_results(
    client: Client, read: Prepared, work: Any, redis: Redis
) -> None:
    batch = client.submit_many(read, topics(4), at_once=4)
    begin, lost = batch._begin, list[str]()

    def begin_and_lose_one(room: int) -> Any:
        begun = begin(room)
        if begun is not None:
            work()
            lost.append(begun[1][1])
            redis.delete(keys.run_key(lost[0]))
        return begun

    batch._begin = begin_and_lose_one
    found = dict(batch)
    assert {number: result.result for number, result in found.items()} == {1: "on t1", 2: None, 3: "on t3", 4: "on t4"}
    assert (found[2].run_id, found[2].status) == (lost[0], "failed")
    assert f"there is no run {lost[0]}" in (found[2].error or "")
    assert found[2].ledger.keys() == found[1].ledger.keys()


def test_without_the_code_of_its_runs_a_batch_has_the_results_that_are_there(
    client: Client, read: Prepared, work: Any, redis: Redis
) -> None:
    assert len(drive(client.submit_many(read, topics(3), id="some"), work)) == 3
    ids = redis.zrange(keys.key("runs_key", home=keys.home()), 0, -1)
    redis.delete(*redis.scan_iter("*:bundle:*"))
    assert sorted(str(client.run(run).result().result) for run in ids) == ["on t1", "on t2", "on t3"]
