"""What the bus does before handlers hear of an event: taps, the record, numbers; and what it tells again."""

import asyncio
import contextvars
import gc
import threading
import tracemalloc
import weakref
from typing import Any

import pytest

from runner import Crew, Flow, Task, start
from runner.events import (
    BareState,
    BaseEvent,
    TaskCompletedEvent,
    TaskStartedEvent,
    event_bus,
    get_emission_sequence,
    is_replaying,
    reset_emission_counter,
    set_emission_counter,
    use_sequence,
)

DEADLINE = 20.0


def event(kind="something", **fields):
    return BaseEvent(type=kind, **fields)


class Thing:
    """What looks like a crew, flow or agent to the bus."""

    def __init__(self, entity_type="crew"):
        self.entity_type = entity_type


# -- taps


def test_taps_hear_first_and_in_the_emitters_thread(bus):
    state, heard = BareState(), []
    bus.set_runtime_state(state)
    bus.on("my_own")(lambda source, event: heard.append("handler"))
    bus.tap(lambda source, event, state: heard.append((source, threading.get_ident(), state)))
    bus.tap(lambda source, event: heard.append(len(state.event_record)))
    bus.emit("me", event("my_own")).result(DEADLINE)
    assert heard == [("me", threading.get_ident(), state), 1, "handler"]


def test_taps_hear_in_the_order_of_emission(bus):
    heard = []
    bus.tap(lambda source, event: heard.append(event.emission_sequence))
    with bus.kickoff_scope():
        barrier = threading.Barrier(8)

        def work():
            barrier.wait()
            for _ in range(50):
                bus.emit(None, event())

        threads = [threading.Thread(target=contextvars.copy_context().run, args=(work,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert heard == list(range(1, 401))


def test_a_tap_may_emit(bus):
    order = []

    @bus.tap
    def tap(source, happened):
        order.append(happened.type)
        if happened.type == "outer":
            bus.emit(None, event("inner"))

    bus.emit(None, event("outer"))
    assert order == ["outer", "inner"]


def test_an_error_in_a_tap_is_logged_and_a_stop_goes_through(bus, caplog):
    def tap(source, event):
        raise {"bad": ValueError("full"), "stop": KeyboardInterrupt()}[event.type]

    bus.tap(tap)
    bus.emit(None, event("bad"))
    assert "tap failed at bad" in caplog.text
    with pytest.raises(KeyboardInterrupt):
        bus.emit(None, event("stop"))
    bus.untap(tap)
    bus.emit(None, event("stop"))


# -- what is kept


def test_nothing_is_kept_unless_recording_is_armed(bus):
    with bus.kickoff_scope():
        bus.emit(Thing(), event())
        bus.register_entity(Thing())
        assert bus.runtime_state is None
    assert not bus.recording


def test_armed_a_kickoffs_entities_and_events_are_kept_until_the_next_one_is_over(bus):
    bus.enable_recording()
    crew, agent = Thing(), Thing("agent")
    with bus.kickoff_scope():
        for source in (crew, agent, crew, "text", None, Thing("task")):
            bus.emit(source, event())
        state = bus.runtime_state
        assert state.root == [crew, agent]
        assert len(state.event_record) == 6
    assert bus.runtime_state is state
    with bus.kickoff_scope():
        bus.emit(crew, event())
        other = bus.runtime_state
        assert other is not state
    assert bus.runtime_state is other
    with bus.kickoff_scope():
        assert bus.runtime_state is None, "nothing of it is in the next one"
    bus.reset_runtime_state()
    assert bus.runtime_state is None
    assert bus.recording


def test_a_state_that_is_set_arms_and_goes_on_counting(bus):
    state = BareState()
    state.event_record.add(event(emission_sequence=41))
    bus.set_runtime_state(state)
    assert bus.recording
    with bus.kickoff_scope():
        assert bus.runtime_state is state
        happened = event()
        bus.emit(None, happened)
    assert happened.emission_sequence == 42
    assert happened.event_id in state.event_record
    assert bus.runtime_state is None, "the next kickoff has one of its own"


def test_resetting_drops_what_was_recorded_and_stays_armed(bus):
    bus.enable_recording()
    bus.emit(Thing(), event())
    first = bus.runtime_state
    assert len(first.event_record) == 1
    bus.reset_runtime_state()
    assert bus.runtime_state is None
    assert bus._registered_entity_ids == set()
    bus.emit(Thing(), event())
    assert bus.runtime_state is not first
    assert len(bus.runtime_state.root) == len(bus.runtime_state.event_record) == 1


def test_the_state_is_made_as_one_says(bus):
    made = []
    bus.state_factory = lambda: made.append(BareState()) or made[-1]
    bus.enable_recording()
    with bus.kickoff_scope():

        def work():
            bus.emit(None, event())

        threads = [threading.Thread(target=contextvars.copy_context().run, args=(work,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bus.runtime_state is made[0]
    assert len(made) == 1, "all contexts of a kickoff share it"


def test_kickoffs_side_by_side_have_a_state_and_a_sequence_each(bus):
    bus.enable_recording()

    async def one():
        with bus.kickoff_scope() as outermost:
            assert outermost
            numbers = []
            for _ in range(5):
                happened = event()
                bus.emit(None, happened)
                numbers.append(happened.emission_sequence)
                await asyncio.sleep(0)
            return numbers, bus.runtime_state

    async def main():
        return await asyncio.gather(one(), one())

    (numbers, state), (others, other) = asyncio.run(main())
    assert numbers == others == [1, 2, 3, 4, 5]
    assert state is not other
    assert len(state.event_record) == len(other.event_record) == 5


def test_a_kickoff_in_a_kickoff_is_part_of_it(bus):
    bus.enable_recording()
    with bus.kickoff_scope() as outermost:
        bus.emit(None, TaskStartedEvent())
        state = bus.runtime_state
        with bus.kickoff_scope() as inner:
            assert (outermost, inner) == (True, False)
            happened = TaskStartedEvent()
            bus.emit(None, happened)
        assert bus.runtime_state is state
        assert happened.emission_sequence == 2
        done = TaskCompletedEvent()
        bus.emit(None, done)
        assert done.started_event_id != happened.event_id, "what a kickoff leaves open ends with it"


def test_a_restored_kickoff_in_a_kickoff_gives_way_again(bus):
    bus.enable_recording()
    with bus.kickoff_scope():
        bus.emit(None, event())
        state, restored = bus.runtime_state, BareState()
        bus.set_runtime_state(restored)
        with bus.kickoff_scope():
            bus.emit(None, event())
        assert bus.runtime_state is state
        assert len(restored.event_record) == len(state.event_record) == 1


def test_memory_is_flat_over_many_kickoffs_without_recording(bus):
    def kickoffs(count):
        for _ in range(count):
            with bus.kickoff_scope():
                bus.emit(Thing(), TaskStartedEvent(task_id="t", context="much" * 100))
                bus.emit(Thing(), TaskCompletedEvent(task_id="t", output="much" * 100))

    kickoffs(100)
    gc.collect()
    tracemalloc.start()
    try:
        kickoffs(100)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        kickoffs(1000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 10_000, "under ten bytes a kickoff"


def test_memory_is_flat_with_handlers_that_are_done(bus):
    bus.on("*")(lambda source, event: None)
    for _ in range(500):
        bus.emit(None, event())
    assert bus.flush(DEADLINE)
    dispatcher = bus._dispatcher
    assert (len(dispatcher.pending), len(dispatcher._lanes), len(dispatcher._ready)) == (0, 0, 0)


# -- numbers


def test_numbers_can_come_from_elsewhere(bus):
    given = iter([7, 11])

    def source(happened):
        happened.event_id = f"{happened.type}@{happened.parent_event_id}"
        return next(given)

    use_sequence(source)
    started, done = TaskStartedEvent(), TaskCompletedEvent()
    bus.emit(None, started)
    bus.emit(None, done)
    assert [started.emission_sequence, done.emission_sequence, get_emission_sequence()] == [7, 11, 11]
    assert (done.started_event_id, done.previous_event_id) == ("task_started@None", "task_started@None")


def test_the_counter_can_be_set(bus):
    set_emission_counter(10)
    bus.emit(None, first := event())
    reset_emission_counter()
    bus.emit(None, second := event())
    assert [first.emission_sequence, second.emission_sequence] == [11, 1]


# -- replay


def test_replaying_changes_and_keeps_nothing(bus):
    bus.enable_recording()
    tapped, heard = [], []
    bus.tap(lambda source, event: tapped.append(event))

    @bus.on("*")
    def handler(source, event):
        heard.append((source, event, is_replaying()))

    @bus.on("*")
    async def ahandler(source, event):
        heard.append((source, event, is_replaying()))

    recorded = TaskStartedEvent(event_id="e1", parent_event_id="p", emission_sequence=42)
    bus.replay("me", recorded).result(DEADLINE)
    assert heard == [("me", recorded, True)] * 2
    assert (recorded.event_id, recorded.parent_event_id, recorded.emission_sequence) == ("e1", "p", 42)
    assert (tapped, bus.runtime_state, is_replaying()) == ([], None, False)
    bus.emit("me", event()).result(DEADLINE)
    assert {replaying for *_, replaying in heard[2:]} == {False}


class OneStep(Flow[dict[str, Any]]):
    @start()
    def only(self) -> str:
        return "done"


@pytest.mark.parametrize("kicked_off", [OneStep, lambda: Crew(tasks=[Task(name="a", run=lambda ctx: "A")])])
def test_what_the_last_kickoff_recorded_can_be_looked_at(kicked_off: Any) -> None:
    """CrewAI's own test of it."""
    event_bus.reset_runtime_state()
    event_bus.enable_recording()
    try:
        kicked_off().kickoff()
        state = event_bus.runtime_state
        assert state is not None
        assert len(state.root) == 1
        assert len(state.event_record.nodes) > 0
        kept = [weakref.ref(state.root[0])]
        del state
        for _ in range(20):
            kicked_off().kickoff()
        gc.collect()
        assert kept[0]() is None, "of those before the last nothing is kept"
    finally:
        event_bus._keeps_last = event_bus._armed = False
        event_bus.reset_runtime_state()
    assert event_bus.runtime_state is None
