"""The events of a run: one sequence without gaps, and each start with one end, whatever happens in between."""

from collections import Counter
from typing import Any

import pytest

from runner.core.jobs import Claim, Scope
from runner.events import PAIRS, VALID_EVENT_PAIRS, event_id_of
from runner.providers.records import EVENTS_KEPT, EVENTS_PER_TASK, Event

from .driver import Driver, plan_of


@pytest.fixture
def told(driver: Driver) -> Any:
    """The events of a run, after a look at what must hold for all of them."""

    def look(run: str = "r-1") -> list[Event]:
        events = list(driver.runs.events(run))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        by_seq = {event.seq: event for event in events}
        ends = Counter(event.started for event in events if event.started)
        assert set(ends.values()) <= {1}, "each start has one end"
        for event in events:
            assert event.parent < event.seq
            if event.started:
                start = by_seq[event.started]
                if start.type != "run_resumed" and event.type != "run_cancelled":
                    assert VALID_EVENT_PAIRS[event.type] == start.type
                assert event.fields.get("task") == start.fields.get("task")
                assert event.parent == start.parent, "an end stands where its start does"
        return events

    return look


def shape(events: list[Event]) -> list[tuple[str, str, int, int]]:
    return [(event.type, event.fields.get("task", ""), event.parent, event.started) for event in events]


def test_a_run_is_one_tree(driver: Driver, told: Any) -> None:
    driver.submit(plan_of("a", "b: a"))
    driver.work()
    assert shape(told()) == [
        ("crew_kickoff_started", "", 0, 0),
        ("task_started", "a", 1, 0),
        ("task_completed", "a", 1, 2),
        ("task_started", "b", 1, 0),
        ("task_completed", "b", 1, 4),
        ("crew_kickoff_completed", "", 0, 1),
    ]


def test_readers_make_the_ids(driver: Driver, told: Any) -> None:
    driver.submit(plan_of("a"))
    driver.work()
    _, _, done, over = told()
    assert done.to_dict() == {
        "seq": 3,
        "emission_sequence": 3,
        "at": done.at,
        "type": "task_completed",
        **{"branch": "main", "task": "a", "commit_seq": "1"},
        "event_id": event_id_of("r-1", 3),
        "parent_event_id": event_id_of("r-1", 1),
        "started_event_id": event_id_of("r-1", 2),
        "previous_event_id": event_id_of("r-1", 2),
    }
    assert over.parent_event_id is None
    assert event_id_of("r-1", 3) != event_id_of("r-2", 3)


def test_a_task_has_one_start_however_often_it_is_claimed(driver: Driver, told: Any) -> None:
    driver.submit(plan_of("a"))
    first = driver.take("a")["a"]
    assert first.scope == Scope(1, 2, 2, True, frozenset({"task_completed"}), opens=True)
    driver.task(first).note("task_log", "here")
    driver.task(first).release(replayed=0)
    second = driver.take("a")["a"]
    assert second.scope == Scope(1, 2, 5, False, frozenset({"task_completed"}), opens=True)
    driver.task(second).retry(0, "it raised", replayed=0)
    driver.workers.move_due()
    third = driver.take("a")["a"]
    driver.workers.reap(third.worker, process=third.job.task and "p0", reason="gone", max_attempts=9)
    driver.workers.beat("w0", 5000, "{}")
    driver.commit(driver.take("a")["a"])
    assert [one[:3] for one in shape(told())[1:-1]] == [
        ("task_started", "a", 1),
        ("task_log", "a", 2),
        ("task_released", "a", 2),
        ("task_resumed", "a", 2),
        ("task_retried", "a", 2),
        ("task_resumed", "a", 2),
        ("task_recovered", "a", 2),
        ("task_resumed", "a", 2),
        ("task_completed", "a", 1),
    ]


def test_a_task_that_failed_for_good_starts_anew(driver: Driver, told: Any) -> None:
    driver.submit(plan_of("a", "b"))
    held = driver.take("a", "b")
    task = driver.task(held["a"])
    task.fail("broken", replayed=0)
    assert task.end_events == (4, 5)
    driver.commit(held["b"])
    assert driver.resume("r-1") == "resumed"
    again = driver.take("a")["a"]
    assert again.scope == Scope(7, 8, 8, True, frozenset({"task_completed"}), opens=True)
    driver.commit(again)
    assert shape(told()) == [
        ("crew_kickoff_started", "", 0, 0),
        ("task_started", "a", 1, 0),
        ("task_started", "b", 1, 0),
        ("task_failed", "a", 1, 2),
        ("crew_kickoff_failed", "", 0, 1),
        ("task_completed", "b", 1, 3),
        ("run_resumed", "", 0, 0),
        ("task_started", "a", 7, 0),
        ("task_completed", "a", 7, 8),
        ("crew_kickoff_completed", "", 0, 7),
    ]


def test_a_task_that_was_cancelled_goes_on_under_its_start(driver: Driver, told: Any) -> None:
    driver.submit(plan_of("a"))
    driver.take("a")
    driver.runs.cancel("r-1", "enough")
    driver.resume("r-1")
    driver.work()
    assert shape(told()) == [
        ("crew_kickoff_started", "", 0, 0),
        ("task_started", "a", 1, 0),
        ("run_cancelled", "", 0, 1),
        ("run_resumed", "", 0, 0),
        ("task_resumed", "a", 2, 0),
        ("task_completed", "a", 1, 2),
        ("crew_kickoff_completed", "", 0, 4),
    ]


# -- what a task's code tells


def tell(driver: Driver, claim: Claim, kind: str, **relatives: Any) -> int:
    ends = next((end for end in PAIRS.get(kind, ()) if end.endswith(("failed", "error"))), "")
    return driver.task(claim).append_event(kind, claim.job.task, ends=ends, **relatives)


def test_what_a_task_tells_stands_in_its_scope(driver: Driver, told: Any) -> None:
    driver.submit(plan_of("a"))
    claim = driver.take("a")["a"]
    tool = tell(driver, claim, "tool_usage_started")
    inner = tell(driver, claim, "my_own", parent=tool, cause=2)
    tell(driver, claim, "tool_usage_finished", parent=2, started=tool)
    driver.commit(claim)
    events = told()
    assert [(e.type, e.parent, e.started, e.cause) for e in events[2:5]] == [
        ("tool_usage_started", 2, 0, 0),
        ("my_own", tool, 0, 2),
        ("tool_usage_finished", 2, tool, 0),
    ]
    assert events[inner - 1].triggered_by_event_id == event_id_of("r-1", 2)
    assert len(events) == 7


@pytest.mark.parametrize("how", ["release", "retry", "fail", "commit", "reap", "cancel"])
def test_what_an_attempt_left_open_is_closed_the_innermost_first(driver: Driver, told: Any, how: str) -> None:
    driver.submit(plan_of("a"))
    claim = driver.take("a")["a"]
    agent = tell(driver, claim, "agent_execution_started")
    call = tell(driver, claim, "llm_call_started", parent=agent)
    tell(driver, claim, "llm_call_completed", parent=agent, started=call)
    tool = tell(driver, claim, "tool_usage_started", parent=agent)
    match how:
        case "release":
            driver.task(claim).release(replayed=0)
        case "retry":
            driver.task(claim).retry(0, "it raised", replayed=0)
        case "fail":
            driver.task(claim).fail("broken", replayed=0)
        case "commit":
            driver.commit(claim)
        case "reap":
            driver.workers.reap("w0", reason="gone", max_attempts=9)
        case "cancel":
            driver.runs.cancel("r-1", "enough")
    closed = [event for event in told() if event.fields.get("error") == "interrupted"]
    # The agent of a task that is handed on is at work still: who claims it next goes on under that start.
    at_work = [agent] if how in ("release", "reap") else []
    assert [(e.type, e.parent, e.started) for e in closed] == [
        ("tool_usage_error", agent, tool),
        *([] if at_work else [("agent_execution_error", 2, agent)]),
    ]
    starts = {e.seq for e in told() if e.type in PAIRS and e.type != "crew_kickoff_started"}
    ended = {e.started for e in told()}
    assert starts - ended == ({2} if how in ("release", "retry", "reap", "cancel") else set()) | {*at_work}
    if at_work:
        driver.workers.beat("w0", 5000, "{}")
        again = driver.take("a")["a"]
        assert again.scope.agent == agent
        driver.task(again).fail("broken", replayed=0)
        assert [e.started for e in told() if e.type == "agent_execution_error"] == [agent]


def test_who_lost_the_claim_tells_nothing(driver: Driver, told: Any) -> None:
    from runner.core.errors import ClaimLost

    driver.submit(plan_of("a"))
    claim = driver.take("a")["a"]
    driver.task(claim).release(replayed=0)
    before = len(told())
    with pytest.raises(ClaimLost):
        tell(driver, claim, "my_own")
    assert len(told()) == before


def test_what_a_task_tells_can_trigger_a_checkpoint_while_its_branch_goes_on(driver: Driver) -> None:
    driver.submit(plan_of("a", "b"), checkpoint_on=",tool_usage_finished,")
    held = driver.take("a", "b")
    tell(driver, held["a"], "tool_usage_finished", trigger="tool_usage_finished")
    tell(driver, held["a"], "tool_usage_error", trigger="tool_usage_error")
    tell(driver, held["a"], "tool_usage_finished")
    [checkpoint] = driver.runs.checkpoints("r-1", "main")
    assert (checkpoint.trigger, checkpoint.task) == ("tool_usage_finished", "a")
    driver.task(held["b"]).fail("broken", replayed=0)
    tell(driver, held["a"], "tool_usage_finished", trigger="tool_usage_finished")
    assert len(driver.runs.checkpoints("r-1", "main")) == 1


def test_the_events_of_a_long_run_are_all_there(driver: Driver, told: Any) -> None:
    many = (EVENTS_KEPT + 200) // 2
    driver.submit(plan_of(*(f"t{number}" for number in range(many))), checkpoint_on="")
    driver.work()
    assert len(told()) == 2 * many + 2


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_run_keeps_its_newest_events(driver: Driver, fork: Any, tasks: int) -> None:
    """So many, and some for each task that was planned, on any branch; Redis lets up to 100 more stand."""
    run = driver.submit(plan_of("a"))
    claim = driver.take("a")["a"]
    if tasks == 3:
        for name in ("f", "g"):
            fork(run, inputs={"x": 1}, branch=name)
    most = EVENTS_KEPT + EVENTS_PER_TASK * tasks
    for _ in range(most + 200):
        newest = tell(driver, claim, "my_own")
    kept = [event.seq for event in driver.runs.events(run)]
    assert kept == list(range(kept[0], newest + 1))
    assert most <= len(kept) <= most + 200
