"""The bus: who is told of an event, where, and in which order; what is kept, and when."""

import asyncio
import contextlib
import contextvars
import functools
import gc
import logging
import threading
import tracemalloc
from unittest.mock import Mock

import pytest

from runner.events import (
    BareState,
    BaseEvent,
    EventBus,
    FlowEvent,
    FlowFinishedEvent,
    FlowStartedEvent,
    TaskCompletedEvent,
    TaskFailedEvent,
    TaskStartedEvent,
    get_emission_sequence,
    is_replaying,
    kickoff,
    reset_emission_counter,
    restore_event_scope,
    set_emission_counter,
    use_sequence,
)

DEADLINE = 20.0


@pytest.fixture(autouse=True)
def fresh():
    """Nothing is open, and no kickoff is there, before and after each test."""
    restore_event_scope(())
    kickoff.enter(None)
    yield
    restore_event_scope(())
    kickoff.enter(None)


@pytest.fixture
def bus():
    bus = EventBus()
    yield bus
    bus.shutdown()


def event(kind="something", **fields):
    return BaseEvent(type=kind, **fields)


class Thing:
    """What looks like a crew, flow or agent to the bus."""

    def __init__(self, entity_type="crew"):
        self.entity_type = entity_type


# -- handlers


def test_a_handler_hears_in_order_of_what_it_asked_for(bus):
    heard = []
    bus.on(TaskStartedEvent, "task_completed")(lambda source, event: heard.append((source, event.type)))
    for _ in range(50):
        bus.emit("me", TaskStartedEvent(task_id="t"))
        bus.emit("me", TaskCompletedEvent(task_id="t"))
        bus.emit("me", event())
    assert bus.flush()
    assert heard == [("me", "task_started"), ("me", "task_completed")] * 50


def test_a_class_means_its_subclasses_too_and_a_star_means_all(bus):
    heard = {"flow": [], "all": [], "every": []}
    bus.on(FlowEvent)(lambda _, event: heard["flow"].append(event.type))
    bus.on("*")(lambda _, event: heard["all"].append(event.type))
    bus.on(BaseEvent)(lambda _, event: heard["every"].append(event.type))
    for one in (FlowStartedEvent(), TaskFailedEvent(parent_event_id="e"), FlowFinishedEvent()):
        bus.emit(None, one)
    bus.flush()
    assert heard["flow"] == ["flow_started", "flow_finished"]
    assert heard["all"] == heard["every"] == ["flow_started", "task_failed", "flow_finished"]


def test_a_type_is_enough_where_the_class_is_the_base_class(bus):
    heard = []
    bus.on("my_own")(lambda _, event: heard.append(event.type))
    bus.emit(None, event("my_own"))
    bus.flush()
    assert heard == ["my_own"]


def test_a_handler_is_told_once_however_often_it_asked(bus):
    handler = Mock()
    for kind in (TaskStartedEvent, TaskStartedEvent, "task_started", "*"):
        bus.register_handler(kind, handler)
    bus.emit(None, TaskStartedEvent())
    bus.flush()
    assert handler.call_count == 1


def test_off(bus):
    heard = []
    handler = bus.on(TaskStartedEvent, "my_own")(lambda _, event: heard.append(event.type))
    bus.emit(None, event("my_own"))
    bus.off("my_own", handler)
    bus.off("my_own", handler)  # it is off
    bus.emit(None, event("my_own"))
    bus.emit(None, TaskStartedEvent())
    bus.flush()
    assert heard == ["my_own", "task_started"]


@pytest.mark.parametrize("wanted", [None, 7, int, TaskStartedEvent()])
def test_what_is_no_event_cannot_be_asked_for(bus, wanted):
    with pytest.raises(TypeError, match="an event class or a type such as 'task_completed'"):
        bus.on(wanted)(print)


def test_nothing_cannot_be_asked_for(bus):
    with pytest.raises(TypeError, match="takes the events to listen for"):
        bus.on()


class Listener:
    """Handlers of all shapes, each of which says what it got."""

    def __init__(self):
        self.got = []

    def two(self, source, event):
        self.got.append(("two", source, None))

    def three(self, source, event, state):
        self.got.append(("three", source, state))

    async def atwo(self, source, event):
        self.got.append(("atwo", source, None))

    async def athree(self, source, event, state):
        self.got.append(("athree", source, state))

    def preset(self, extra, source, event, state):
        self.got.append((extra, source, state))

    def __call__(self, source, event, *rest):
        self.got.append(("called", source, None))


def test_handlers_of_all_shapes(bus):
    state, listener = BareState(), Listener()
    bus.set_runtime_state(state)
    shapes = [listener.two, listener.three, listener.atwo, listener.athree, listener]
    shapes.append(functools.partial(listener.preset, "preset"))
    for handler in shapes:
        bus.register_handler("my_own", handler)
    bus.emit("me", event("my_own")).result(DEADLINE)
    assert {kind: (source, given) for kind, source, given in listener.got} == {
        **dict.fromkeys(["two", "atwo", "called"], ("me", None)),
        **dict.fromkeys(["three", "athree", "preset"], ("me", state)),
    }


def test_a_handler_that_fails_is_logged_and_stops_nobody(bus, caplog):
    heard = []

    @bus.on("my_own")
    def broken(source, event):
        raise ValueError("spilt")

    @bus.on("my_own")
    async def abroken(source, event):
        raise ValueError("aspilt")

    bus.on("my_own")(lambda source, event: heard.append(event.type))
    for _ in range(2):
        assert bus.emit(None, event("my_own")).result(DEADLINE) is None
    assert heard == ["my_own"] * 2
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert {str(record.exc_info[1]) for record in caplog.records} == {"spilt", "aspilt"}
    assert "broken failed" in caplog.text


def test_a_handler_that_ends_the_thread_does_not(bus, caplog):
    @bus.on("my_own")
    def leaving(source, event):
        raise SystemExit(1)

    for _ in range(20):
        bus.emit(None, event("my_own"))
    assert bus.flush(DEADLINE)
    assert len(caplog.records) == 20


def test_handlers_run_side_by_side_and_elsewhere(bus):
    barrier, threads = threading.Barrier(3), set()

    def handler(name, source, event):
        barrier.wait(DEADLINE)
        threads.add(threading.current_thread().name)

    for name in "abc":
        bus.register_handler("my_own", functools.partial(handler, name))
    assert bus.emit(None, event("my_own")).result(DEADLINE) is None
    assert threads == {"runner-events"}


def test_a_handler_sees_the_context_of_the_emitter(bus):
    var, seen = contextvars.ContextVar("var", default="none"), []
    bus.on("my_own")(lambda source, event: seen.append(var.get()))

    async def asee(source, event):
        seen.append(var.get())

    bus.register_handler("my_own", asee)
    var.set("mine")
    bus.emit(None, event("my_own")).result(DEADLINE)
    assert seen == ["mine", "mine"]


def test_a_handler_may_emit_and_wait(bus):
    heard = []

    @bus.on("outer")
    def outer(source, _):
        inner = bus.emit(None, event("inner"))
        heard.append(("outer", inner.result(DEADLINE)))

    bus.on("inner")(lambda source, event: heard.append(("inner", event.previous_event_id)))
    first = event("outer")
    bus.emit(None, first).result(DEADLINE)
    assert heard == [("inner", first.event_id), ("outer", None)]


def test_a_handler_that_flushes_does_not_wait_for_itself(bus):
    flushed = []
    bus.on("my_own")(lambda source, event: flushed.append(bus.flush(None)))
    bus.emit(None, event("my_own")).result(DEADLINE)
    assert flushed == [False]


def test_flush_waits_for_as_long_as_it_was_told(bus):
    go = threading.Event()
    bus.on("my_own")(lambda source, event: go.wait(DEADLINE))
    assert bus.flush(0), "there is nothing to wait for"
    bus.emit(None, event("my_own"))
    assert not bus.flush(0)
    go.set()
    assert bus.flush(None)


def test_without_handlers_there_is_no_future_and_no_thread(bus):
    before = threading.active_count()
    assert bus.emit(None, event()) is None
    assert threading.active_count() == before


def test_threads_are_few_however_many_handlers_wait(bus):
    go, heard = threading.Event(), []

    def handler(n, source, event):
        go.wait(DEADLINE)
        heard.append(n)

    for n in range(30):
        bus.register_handler("my_own", functools.partial(handler, n))
    future = bus.emit(None, event("my_own"))
    assert bus._dispatcher._threads == 8
    go.set()
    future.result(DEADLINE)
    assert sorted(heard) == list(range(30))


def test_handlers_for_a_while(bus):
    heard = []
    bus.on("my_own")(lambda source, event: heard.append("before"))
    with contextlib.suppress(ValueError), bus.scoped_handlers():
        bus.on("my_own")(lambda source, event: heard.append("inside"))
        bus.emit(None, event("my_own")).result(DEADLINE)
        raise ValueError
    bus.emit(None, event("my_own")).result(DEADLINE)
    assert heard == ["inside", "before"]


def test_many_threads_register_and_emit(bus):
    heard, lock = [], threading.Lock()

    def handler(n, source, event):
        with lock:
            heard.append((n, event.type))

    def work(n):
        for _ in range(20):
            bus.register_handler(f"of_{n}", functools.partial(handler, n))
            bus.emit(None, event(f"of_{n}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.flush(DEADLINE)
    assert len(heard) == 10 * sum(range(1, 21))
    assert all(kind == f"of_{n}" for n, kind in heard)


# -- async


def test_aemit_waits_for_all_handlers(bus):
    heard = []

    async def main():
        loop = asyncio.get_running_loop()

        @bus.on("my_own")
        async def here(source, event):
            await asyncio.sleep(0)
            heard.append(asyncio.get_running_loop() is loop)

        @bus.on("my_own")
        async def broken(source, event):
            raise ValueError("spilt")

        bus.on("my_own")(lambda source, event: heard.append("sync"))
        await bus.aemit(None, happened)

    happened = event("my_own")
    asyncio.run(main())
    assert sorted(map(str, heard)) == ["True", "sync"]
    assert happened.emission_sequence == 1


def test_async_handlers_have_a_loop_of_their_own(bus):
    names = []

    @bus.on("my_own")
    async def handler(source, event):
        await asyncio.sleep(0)
        names.append(threading.current_thread().name)

    for _ in range(3):
        bus.emit(None, event("my_own"))
    assert bus.flush(DEADLINE)
    assert names == ["runner-events-loop"] * 3


# -- the end


def test_after_shutdown_nobody_is_told(bus, caplog):
    heard = []
    bus.on("my_own")(lambda source, event: heard.append(event))

    async def aheard(source, event):
        heard.append(event)

    bus.register_handler("my_own", aheard)
    bus.emit(None, event("my_own"))
    bus.shutdown()
    assert len(heard) == 2
    assert bus.emit(None, event("my_own")) is None
    assert bus.replay(None, event("my_own")) is None
    asyncio.run(bus.aemit(None, event("my_own")))
    assert len(heard) == 2
    assert caplog.messages == ["the event bus is shut down: nobody hears of my_own"] * 3


def test_shutdown_can_leave_what_still_runs(bus):
    began, ended = threading.Event(), threading.Event()

    @bus.on("my_own")
    async def handler(source, event):
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    bus.emit(None, event("my_own"))
    assert began.wait(DEADLINE)
    bus.shutdown(wait=False)
    assert ended.wait(DEADLINE)


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


def test_armed_a_kickoffs_entities_and_events_are_kept_while_it_lasts(bus):
    bus.enable_recording()
    crew, agent = Thing(), Thing("agent")
    with bus.kickoff_scope():
        for source in (crew, agent, crew, "text", None, Thing("task")):
            bus.emit(source, event())
        state = bus.runtime_state
        assert state.root == [crew, agent]
        assert len(state.event_record) == 6
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


def test_memory_is_flat_over_five_thousand_kickoffs_without_recording(bus):
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
        kickoffs(4800)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000


def test_memory_is_flat_with_handlers_that_are_done(bus):
    bus.on("*")(lambda source, event: None)
    for _ in range(500):
        bus.emit(None, event())
    assert bus.flush(DEADLINE)
    dispatcher = bus._dispatcher
    assert (len(dispatcher._pending), len(dispatcher._lanes), len(dispatcher._ready)) == (0, 0, 0)


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
