"""The scope: what is open around an event, in this context and in those copied from it."""

import asyncio
import contextlib
import contextvars
import itertools
import json
import logging
import threading

import pytest

from runner.events import (
    BareState,
    EmptyStackError,
    EventBus,
    EventContextConfig,
    EventPairingError,
    MismatchBehavior,
    StackDepthExceededError,
    TaskCompletedEvent,
    TaskFailedEvent,
    TaskStartedEvent,
    apply_scope,
    capture_scope,
    event_scope,
    event_stack,
    get_current_parent_id,
    get_enclosing_parent_id,
    get_last_event_id,
    get_triggering_event_id,
    handle_empty_pop,
    handle_mismatch,
    load_event,
    pop_event_scope,
    push_event_scope,
    reset_last_event_id,
    restore_event_scope,
    resume_event_scope,
    resume_task_scope,
    set_event_context_config,
    set_last_event_id,
    triggered_by_scope,
)

KICKOFF = (("crew", "crew_kickoff_started"),)


@pytest.fixture
def bus():
    bus = EventBus()
    yield bus
    bus.shutdown()


def emit(bus, kind, **fields):
    event = load_event({"type": kind, **fields})
    bus.emit(None, event)
    return event


# -- the stack


def test_nothing_is_open_at_first():
    assert get_current_parent_id() is None
    assert get_enclosing_parent_id() is None
    assert pop_event_scope() is None


def test_scopes_nest():
    push_event_scope("e1", "crew_kickoff_started")
    push_event_scope("e2", "task_started")
    assert (get_current_parent_id(), get_enclosing_parent_id()) == ("e2", "e1")
    assert pop_event_scope() == ("e2", "task_started")
    assert (get_current_parent_id(), get_enclosing_parent_id()) == ("e1", None)


def test_a_scope_for_a_while():
    push_event_scope("e1", "crew_kickoff_started")
    with contextlib.suppress(ValueError), event_scope("e2", "task_started"):
        assert get_current_parent_id() == "e2"
        with event_scope("e1"):  # open already
            assert get_current_parent_id() == "e2"
        raise ValueError
    assert get_current_parent_id() == "e1"


def test_depth_is_limited():
    set_event_context_config(EventContextConfig(max_stack_depth=2))
    push_event_scope("e1")
    push_event_scope("e2", "llm_call_started")
    with pytest.raises(
        StackDepthExceededError, match=r"task_started would be nested more than 2 deep.*llm_call_started"
    ):
        push_event_scope("e3", "task_started")
    set_event_context_config(EventContextConfig(max_stack_depth=0))
    push_event_scope("e3", "task_started")


def test_too_deep_is_refused_before_the_event_has_a_number(bus):
    set_event_context_config(EventContextConfig(max_stack_depth=1))
    emit(bus, "crew_kickoff_started")
    with pytest.raises(StackDepthExceededError):
        emit(bus, "task_started")
    assert emit(bus, "tea").emission_sequence == 2


def test_a_hundred_are_allowed():
    for i in range(100):
        push_event_scope(f"e{i}")
    with pytest.raises(StackDepthExceededError):
        push_event_scope("e100")


# -- ends


def test_an_end_closes_its_start(bus):
    crew = emit(bus, "crew_kickoff_started")
    task = emit(bus, "task_started")
    call = emit(bus, "llm_stream_chunk")
    done = emit(bus, "task_completed")
    over = emit(bus, "crew_kickoff_failed")
    assert (crew.parent_event_id, task.parent_event_id, call.parent_event_id) == (None, crew.event_id, task.event_id)
    assert (done.parent_event_id, done.started_event_id) == (crew.event_id, task.event_id)
    assert (over.parent_event_id, over.started_event_id) == (None, crew.event_id)
    assert event_stack() == ()


@pytest.mark.parametrize("behavior", MismatchBehavior)
def test_an_end_without_a_start(bus, behavior, caplog):
    set_event_context_config(EventContextConfig(empty_pop_behavior=behavior))
    if behavior is MismatchBehavior.RAISE:
        with pytest.raises(EmptyStackError, match="task_completed ends something, but nothing is open"):
            emit(bus, "task_completed")
        return
    assert emit(bus, "task_completed").started_event_id is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING] * (behavior is MismatchBehavior.WARN)


@pytest.mark.parametrize("behavior", MismatchBehavior)
def test_an_end_past_what_never_ended_closes_its_own_start(bus, behavior, caplog):
    set_event_context_config(EventContextConfig(mismatch_behavior=behavior))
    restore_event_scope(KICKOFF)
    task = emit(bus, "task_started")
    emit(bus, "llm_call_started")
    if behavior is MismatchBehavior.RAISE:
        with pytest.raises(EventPairingError, match="task_failed arrived while llm_call_started is open"):
            emit(bus, "task_failed")
        return
    done = emit(bus, "task_failed")
    assert (done.started_event_id, done.parent_event_id) == (task.event_id, "crew")
    assert event_stack() == KICKOFF
    said = "task_failed arrived while llm_call_started is open; it ends task_started"
    assert caplog.messages == [said] * (behavior is MismatchBehavior.WARN)


def test_an_end_of_something_else_closes_nothing(bus, caplog):
    restore_event_scope(KICKOFF)
    done = emit(bus, "task_completed")
    assert (done.started_event_id, done.parent_event_id) == (None, "crew")
    assert event_stack() == KICKOFF
    assert "crew_kickoff_started is open" in caplog.text


def test_complaints_can_be_asked_for():
    set_event_context_config(EventContextConfig(100, MismatchBehavior.RAISE, MismatchBehavior.RAISE))
    with pytest.raises(EventPairingError):
        handle_mismatch("task_completed", "llm_call_started", "task_started")
    with pytest.raises(EmptyStackError):
        handle_empty_pop("task_completed")


def test_an_event_with_a_parent_of_its_own_leaves_the_scope_alone(bus):
    restore_event_scope(KICKOFF)
    started = emit(bus, "task_started", parent_event_id="elsewhere")
    assert started.parent_event_id == "elsewhere"
    assert event_stack() == KICKOFF


def test_the_agents_scope_is_kept_after_a_tool_failed(bus):
    restore_event_scope((*KICKOFF, ("task", "task_started"), ("agent", "agent_execution_started")))
    emit(bus, "tool_usage_started")
    emit(bus, "tool_usage_error")
    assert get_current_parent_id() == "agent"


# -- before, and because of


def test_the_event_before(bus):
    assert get_last_event_id() is None
    first, second = emit(bus, "one"), emit(bus, "two")
    assert (first.previous_event_id, second.previous_event_id) == (None, first.event_id)
    assert get_last_event_id() == second.event_id
    reset_last_event_id()
    assert emit(bus, "three").previous_event_id is None
    set_last_event_id("e9")
    assert emit(bus, "four").previous_event_id == "e9"


def test_the_cause(bus):
    assert get_triggering_event_id() is None
    with triggered_by_scope("outer"):
        with contextlib.suppress(ValueError), triggered_by_scope("inner"):
            assert emit(bus, "one").triggered_by_event_id == "inner"
            raise ValueError
        assert get_triggering_event_id() == "outer"
    assert emit(bus, "two").triggered_by_event_id is None


def test_the_cause_may_be_left_in_another_context(bus):
    async def caused():
        with triggered_by_scope("cause"):
            yield get_triggering_event_id()

    async def closes_in_another_task():
        events = caused()
        assert await anext(events) == "cause"
        await asyncio.create_task(events.aclose())

    asyncio.run(closes_in_another_task())
    entered = triggered_by_scope("cause")
    contextvars.copy_context().run(entered.__enter__)
    entered.__exit__(None, None, None)
    assert get_triggering_event_id() is None


def test_a_function_may_be_called_for_a_cause(bus):
    asked = triggered_by_scope("cause")(get_triggering_event_id)
    assert (asked(), asked(), get_triggering_event_id()) == ("cause", "cause", None)


# -- contexts


def test_threads_with_a_copy_of_the_context_share_a_sequence_and_have_a_scope_each(bus):
    with bus.kickoff_scope():
        crew = emit(bus, "crew_kickoff_started")
        done, barrier = [], threading.Barrier(10)

        def work(name):
            barrier.wait()
            for i in range(10):
                started = emit(bus, "task_started", task_id=f"{name}.{i}")
                done.append((started, emit(bus, "task_completed", task_id=f"{name}.{i}")))

        run_in_threads([(lambda n=n: work(n)) for n in range(10)])
        assert len(done) == 100
        for started, completed in done:
            assert completed.started_event_id == started.event_id
            assert started.parent_event_id == completed.parent_event_id == crew.event_id
        numbers = [event.emission_sequence for pair in done for event in pair]
        assert sorted(numbers) == list(range(2, 202))
        assert event_stack() == ((crew.event_id, "crew_kickoff_started"),)


def run_in_threads(calls):
    threads = [threading.Thread(target=contextvars.copy_context().run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_hundred_asyncio_tasks_share_a_sequence_and_each_follows_the_one_before(bus):
    events = []

    async def work(name):
        events.append(emit(bus, "task_started", task_id=name))
        await asyncio.sleep(0)
        events.append(emit(bus, "task_completed", task_id=name))

    async def together():
        with bus.kickoff_scope():
            emit(bus, "crew_kickoff_started")
            await asyncio.gather(*(work(str(i)) for i in range(50)))

    asyncio.run(together())
    assert [event.emission_sequence for event in events] == list(range(2, 102))
    for before, after in itertools.pairwise(events):
        assert after.previous_event_id == before.event_id
    starts = {event.task_id: event.event_id for event in events if event.type == "task_started"}
    ends = {event.task_id: event.started_event_id for event in events if event.type == "task_completed"}
    assert starts == ends


# -- resuming


def recorded(*events):
    state = BareState()
    for event in events:
        state.event_record.add(event)
    return state


def started(task, name, number):
    return TaskStartedEvent(task_id=task, event_id=name, emission_sequence=number)


def test_without_a_record_there_is_nothing_to_resume(bus):
    assert resume_task_scope("t") is False
    bus.set_runtime_state(recorded(started("other", "e1", 1)))
    assert resume_task_scope("t") is False
    assert event_stack() == ()


def test_the_latest_start_is_resumed_and_ended(bus):
    restore_event_scope(KICKOFF)
    bus.set_runtime_state(recorded(*(started("t", f"e{n}", n) for n in (1, 5, 3)), started("u", "x", 9)))
    assert resume_task_scope("t") is True
    assert event_stack() == (*KICKOFF, ("e5", "task_started"))
    done = TaskCompletedEvent(task_id="t")
    bus.emit(None, done)
    assert (done.started_event_id, done.parent_event_id, done.emission_sequence) == ("e5", "crew", 10)
    assert event_stack() == KICKOFF
    assert resume_task_scope("t") is False, "it has ended"


def test_a_task_that_failed_starts_anew(bus):
    failed = TaskFailedEvent(task_id="t", started_event_id="e1", emission_sequence=2)
    bus.set_runtime_state(recorded(started("t", "e1", 1), failed))
    assert resume_task_scope("t") is False


def test_what_an_agent_began_can_be_resumed_too(bus):
    begun = load_event({"type": "agent_execution_started", "task_id": "t", "event_id": "a1"})
    bus.set_runtime_state(recorded(started("t", "e1", 1), begun))
    assert resume_task_scope("t")
    assert resume_event_scope("agent_execution_started", "t")
    done = emit(bus, "agent_execution_completed")
    assert (done.parent_event_id, done.started_event_id) == ("e1", "a1")


def names():
    return [f"t{i}" for i in range(20)]


def resumed(bus):
    """A state in which twenty tasks were started side by side, in the context of a resumed kickoff."""
    restore_event_scope(KICKOFF)
    bus.set_runtime_state(recorded(*(started(name, f"s-{name}", i) for i, name in enumerate(names(), 1))))


def assert_each_paired_once(bus):
    nodes = bus.runtime_state.event_record.all_nodes()
    assert len(nodes) == 40
    for node in nodes[:20]:
        [end] = node.neighbors("completed_by")
        done = bus.runtime_state.event_record.get(end).event
        assert (done.task_id, done.parent_event_id) == (node.event.task_id, "crew")
    assert sorted(node.event.emission_sequence for node in nodes) == list(range(1, 41))


def test_tasks_resume_their_own_scope_in_threads(bus):
    resumed(bus)
    barrier = threading.Barrier(20)

    def work(name):
        assert resume_task_scope(name)
        barrier.wait()
        emit(bus, "task_completed", task_id=name)

    run_in_threads([(lambda n=n: work(n)) for n in names()])
    assert_each_paired_once(bus)
    assert event_stack() == KICKOFF


def test_tasks_resume_their_own_scope_in_asyncio_tasks(bus):
    resumed(bus)

    async def work(name):
        assert resume_task_scope(name)
        await asyncio.sleep(0)
        emit(bus, "task_completed", task_id=name)

    async def together():
        await asyncio.gather(*map(work, reversed(names())))

    asyncio.run(together())
    assert_each_paired_once(bus)
    assert event_stack() == KICKOFF


# -- across processes


def test_a_scope_can_be_taken_elsewhere(bus):
    with triggered_by_scope("cause"):
        emit(bus, "crew_kickoff_started", event_id="crew")
        emit(bus, "task_started", event_id="task")
        taken = json.loads(json.dumps(capture_scope()))

    def elsewhere():
        apply_scope(taken)
        return emit(bus, "task_completed")

    done = contextvars.Context().run(elsewhere)
    assert (done.parent_event_id, done.started_event_id, done.previous_event_id) == ("crew", "task", "task")
    assert (done.triggered_by_event_id, done.emission_sequence) == ("cause", 3)
    assert event_stack()[-1] == ("task", "task_started"), "this context stays as it is"


def test_an_empty_scope_can_be_taken_too(bus):
    taken = contextvars.Context().run(capture_scope)
    assert taken == {"stack": [], "triggering_event_id": None, "last_event_id": None, "emission_sequence": 0}
    push_event_scope("e1")
    apply_scope(taken)
    assert event_stack() == ()
    apply_scope({})
    assert emit(bus, "one").emission_sequence == 1


def test_branches_that_take_the_same_scope_count_on_one_counter(bus):
    async def branch(taken):
        apply_scope(taken)
        await asyncio.sleep(0)
        return emit(bus, "one").emission_sequence

    async def together():
        with bus.kickoff_scope():
            emit(bus, "crew_kickoff_started")
            return await asyncio.gather(*(branch(capture_scope()) for _ in range(3)))

    assert sorted(asyncio.run(together())) == [2, 3, 4]
