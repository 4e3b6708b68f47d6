"""Steps that follow closely are recorded without a script, and a claim that is lost refuses them as ever."""

from collections.abc import Callable
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from runner.core.errors import ClaimLost
from runner.core.jobs import Claim
from runner.core.ledger import STEP, Counters
from runner.providers.redis import claimed_steps, keys, watched_task
from runner.providers.redis.pipelined import PipelinedConnection
from runner.providers.redis.store import ClaimedTask

from .driver import Driver, plan_of
from .test_reserved import Scene

JOURNAL = "runner:{p0}:run:r-1:branch:main:journal:a"


@pytest.fixture
def scene(driver: Driver) -> Scene:
    """A task whose record the server watches."""
    found = Scene(driver)
    found.step()
    assert driver.line.watcher is not None
    return found


def scripts_run(redis: Redis) -> int:
    return int(redis.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


def paid(scene: Scene) -> int:
    return int(scene.driver.runs.get(scene.run).paid)


def test_a_step_after_another_is_one_round_trip_and_no_script(
    scene: Scene, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    ask_all = scene.driver.line.ask_all
    monkeypatch.setattr(scene.driver.line, "ask_all", lambda *given: asked.append(given[0]) or ask_all(*given))
    before = scripts_run(redis)
    for _ in range(10):
        scene.step()
    assert (scripts_run(redis) - before, len(asked)) == (0, 10)
    assert (paid(scene), redis.hlen(JOURNAL)) == (12, 12)
    assert redis.hget(JOURNAL.replace("journal", "task"), "reached") == "12"


def test_a_heartbeat_and_what_other_tasks_write_drop_no_step(scene: Scene, redis: Redis) -> None:
    before = scripts_run(redis)
    for _ in range(5):
        scene.driver.workers.beat("w0", 5000, "{}")
        redis.hincrby(keys.run_key(scene.run), "events", 1)
        scene.step()
    assert scripts_run(redis) == before + 5, "the beats alone"


def test_where_each_step_is_followed_by_something_else_nothing_is_watched(scene: Scene, redis: Redis) -> None:
    def watched() -> int:
        return int(redis.info("commandstats")["cmdstat_watch"]["calls"])

    for _ in range(claimed_steps.IN_VAIN + 1):
        scene.task.note("log", "so far")
        scene.step()
    before = watched()
    for _ in range(5):
        scene.task.note("log", "so far")
        scene.step()
    assert (watched() - before, paid(scene)) == (0, scene.steps)


def lost_before(scene: Scene) -> None:
    """Between a step and the next."""
    scene.die(dead=False)


def lost_in_between(scene: Scene) -> None:
    """After the transaction, before the look that goes out with it."""
    line, ask_all = scene.driver.line, scene.driver.line.ask_all

    def apart(commands: bytes, many: int, *_: object) -> list[Any] | None:
        line.ask_all = ask_all
        transaction, look, rest = commands.partition(b"*2\r\n$5\r\nWATCH")
        answers = ask_all(transaction, many - 2)
        scene.die(dead=False)
        return [*(answers or []), *(ask_all(look + rest, 2) or [])]

    line.ask_all = apart
    scene.step()


@pytest.mark.parametrize("lose", [lost_before, lost_in_between])
def test_a_claim_that_was_lost_records_nothing(scene: Scene, redis: Redis, lose: Callable[[Scene], None]) -> None:
    lose(scene)
    kept, so_far = redis.hgetall(JOURNAL), paid(scene)
    with pytest.raises(ClaimLost):
        scene.step()
    assert (redis.hgetall(JOURNAL), paid(scene)) == (kept, so_far)


@pytest.mark.parametrize("lose", [lost_before, lost_in_between])
def test_nor_where_the_next_claim_has_the_same_journal(
    scene: Scene, redis: Redis, lose: Callable[[Scene], None]
) -> None:
    lose(scene)
    (job,) = scene.driver.jobs()
    following = scene.driver.claim(job)
    assert isinstance(following, Claim)
    with pytest.raises(ClaimLost):
        scene.step()
    assert redis.hgetall(JOURNAL) == following.recorded


@pytest.mark.parametrize("command", ["watch", "multi", "exec", "unwatch"])
@pytest.mark.parametrize("when", ["ever", "from now on"])
def test_a_user_who_may_not_watch_records_by_the_script(driver: Driver, redis: Redis, command: str, when: str) -> None:
    """Nothing is written that no token was shown for: also where it is refused between two steps."""
    early = Scene(driver) if when == "from now on" else None
    if early is not None:
        early.step()
    redis.execute_command("ACL", "SETUSER", "default", f"-{command}")
    try:
        scene = early or Scene(driver)
        for _ in range(3):
            scene.step()
        assert paid(scene) == scene.steps
        scene.die(dead=False)
        kept = redis.hgetall(JOURNAL)
        with pytest.raises(ClaimLost):
            scene.step()
        assert redis.hgetall(JOURNAL) == kept
    finally:
        redis.execute_command("ACL", "SETUSER", "default", "+@all")


def test_the_next_task_watches_again_where_the_permission_is_back(driver: Driver, redis: Redis) -> None:
    redis.execute_command("ACL", "SETUSER", "default", "-watch")
    try:
        before = Scene(driver)
        for _ in range(3):
            before.step()
        assert not driver.line.watches
    finally:
        redis.execute_command("ACL", "SETUSER", "default", "+@all")
    before.step()
    assert driver.line.watcher is None
    assert driver.line.side() is driver.line
    assert driver.line.watches


def test_an_answer_that_was_lost_is_counted_once(scene: Scene, redis: Redis) -> None:
    scene.driver.line.lose = 1
    scene.step()
    scene.step()
    assert (paid(scene), redis.hlen(JOURNAL)) == (scene.steps, scene.steps)
    scene.die()
    assert scene.in_doubt == 0


def test_a_step_that_has_a_record_keeps_it_and_counts_once(scene: Scene, redis: Redis) -> None:
    scene.task.begin_step()
    scene.task.record_step("s#1", "2", replayed=0)
    assert (redis.hget(JOURNAL, "s#1"), paid(scene)) == ("1", 2)


def test_nor_does_one_that_an_earlier_claim_recorded(scene: Scene, redis: Redis) -> None:
    scene.die()
    (job,) = scene.driver.jobs()
    claim = scene.driver.claim(job)
    assert isinstance(claim, Claim)
    task = ClaimedTask(scene.driver.line, claim, lambda text: None)
    for name in ("s#3", "s#4", "s#5", "s#1"):
        task.begin_step()
        task.record_step(name, "2", replayed=2 if name == "s#3" else 0)
    assert (redis.hget(JOURNAL, "s#1"), paid(scene), redis.hlen(JOURNAL)) == ("1", 5, 5)


def test_texts_of_any_alphabet_are_as_long_as_they_are(scene: Scene, redis: Redis) -> None:
    for name, value in (("ж#1", '"чай"'), ("s#9", '"é"'), ("è#1", '"e"')):
        scene.task.begin_step()
        scene.task.record_step(name, value, replayed=0)
        assert redis.hget(JOURNAL, name) == value


def test_a_run_that_is_gone_is_not_made_again(scene: Scene, redis: Redis) -> None:
    """By hand: all of a run expires at once, and what touches the task drops the step."""
    redis.delete(keys.run_key(scene.run))
    with pytest.raises(ClaimLost):
        scene.step()
    assert not redis.exists(keys.run_key(scene.run))


def test_a_task_whose_store_was_emptied_is_not_made_again(scene: Scene, redis: Redis) -> None:
    redis.flushdb()
    with pytest.raises(ClaimLost):
        scene.step()
    assert not redis.exists(JOURNAL, keys.run_key(scene.run))


def test_the_next_task_of_the_connection_is_not_dropped_for_the_last_ones_sake(driver: Driver, redis: Redis) -> None:
    first = Scene(driver)
    first.step()
    first.task.release(replayed=0)
    driver.submit(plan_of("b"), "r-2")
    claim = driver.take("b")["b"]
    task = ClaimedTask(driver.line, claim, lambda text: None)
    before = 0
    for number in range(5):
        if number == 2:
            before = scripts_run(redis)
        task.begin_step(STEP)
        task.record_step(f"s#{number}", "1", replayed=0)
    assert scripts_run(redis) == before


def test_a_note_that_is_withdrawn_ends_what_is_watched(scene: Scene, redis: Redis) -> None:
    scene.task._note_open()
    assert scene.driver.line.watcher is None
    scene.step()
    scene.step()
    assert paid(scene) == scene.steps


def test_it_looks_at_nothing_that_a_heartbeat_writes() -> None:
    no_line: Any = None
    commands = watched_task.WatchedTask(no_line, "run", "task", "journal", 7)._try
    assert commands.count(b"WATCH\r\n$4\r\ntask") == 1


def test_progress_ends_what_was_counted_without_any(scene: Scene, redis: Redis) -> None:
    """Also of an attempt that records as much as the one before, but other steps: the next one is more."""
    scene.step()
    scene.die()
    (job,) = scene.driver.jobs()
    claim = scene.driver.claim(job)
    assert isinstance(claim, Claim)
    task, record = ClaimedTask(scene.driver.line, claim, lambda text: None), JOURNAL.replace("journal", "task")
    redis.hset(record, "handed", 1)
    for number in range(3):
        task.begin_step()
        task.record_step(f"other#{number}", "1", replayed=0)
    assert redis.hmget(record, "reached", "crashes", "handed") == ["3", "1", "1"]
    task.begin_step()
    task.record_step("other#3", "1", replayed=0)
    assert redis.hmget(record, "reached", "crashes", "handed") == ["4", "0", None]


def test_what_was_passed_and_is_not_counted_is_progress_too(scene: Scene, redis: Redis) -> None:
    """A marker that is read again is a record like others."""
    passed = Counters()
    passed.passed = 3
    scene.task.begin_step()
    scene.task.record_step("t#1", "1", replayed=passed)
    assert scene.driver.line.watcher is not None
    assert redis.hget(JOURNAL.replace("journal", "task"), "reached") == "6"
    scene.step()
    assert redis.hget(JOURNAL.replace("journal", "task"), "reached") == "7"


def test_a_look_that_finds_another_claim_ends_what_was_watched_before(scene: Scene, redis: Redis) -> None:
    """It would be the other one's record that the server watches."""
    line, ask_all = scene.driver.line, scene.driver.line.ask_all

    def apart(commands: bytes, many: int, *_: object) -> list[Any] | None:
        script, look, rest = commands.partition(b"*1\r\n$7\r\nUNWATCH")
        line.ask_all = ask_all
        answers = ask_all(script, 1)
        scene.die(dead=False)
        return [*(answers or []), *(ask_all(look + rest, many - 1) or [])]

    line.ask_all = apart
    scene.task.begin_step()
    scene.task.record_step("s#1", "1", replayed=0)  # it has a record: by the script
    kept = redis.hgetall(JOURNAL)
    with pytest.raises(ClaimLost):
        scene.step()
    assert redis.hgetall(JOURNAL) == kept


def test_whatever_else_is_sent_may_write_to_the_record(scene: Scene) -> None:
    scene.driver.line.execute_command("PING")
    assert scene.driver.line.watcher is None


def test_a_step_that_came_though_it_was_broken_off_counts_once(scene: Scene, redis: Redis) -> None:
    def broken_off(commands: bytes, many: int, *_: object) -> list[Any] | None:
        ask_all(commands, many)
        line.close()
        raise KeyboardInterrupt

    line, ask_all = scene.driver.line, scene.driver.line.ask_all
    line.ask_all = broken_off
    with pytest.raises(KeyboardInterrupt):
        scene.step()
    line.ask_all = ask_all
    scene.task.drop_step()
    for _ in range(2):
        scene.task.begin_step()
        scene.task.record_step(f"t#{_}", "1", replayed=0)
    assert line.watcher is not None
    scene.task.begin_step()
    scene.task.record_step(f"s#{scene.steps}", "1", replayed=0)
    assert paid(scene) == redis.hlen(JOURNAL) == 5


def test_what_the_server_says_unasked_is_no_answer(scene: Scene, redis: Redis) -> None:
    line = scene.driver.line
    line.execute_command("HELLO", "3")
    line.execute_command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a-")
    for _ in range(4):
        scene.step()
        redis.set("a-key", "1")
    redis.delete("a-key")
    scene.step()
    assert line.watcher is not None
    assert line.execute_command("ECHO", "mine") == "mine"
    assert paid(scene) == scene.steps


@pytest.mark.parametrize(
    ("refusal", "watches"),
    [("BUSY Redis is busy running a script.", True), ("NOPERM this user has no permissions", False)],
)
def test_a_refusal_that_passes_does_not_end_watching(refusal: str, watches: bool) -> None:
    answers = [1, "OK", *[ResponseError(refusal)] * 3, ["1", "1", "0", None]]
    line: Any = SimpleNamespace(watches=True, watcher=None, ask_all=lambda commands, many: answers)
    line.refused_to_watch = MethodType(PipelinedConnection.refused_to_watch, line)
    assert watched_task.WatchedTask(line, "run", "task", "journal", 1).begin(b"", "s#1", 1)
    assert line.watches is watches
    assert line.watcher is None
