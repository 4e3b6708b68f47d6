"""Events whose numbers and records are elsewhere, as those of a task on the fleet."""

import contextlib
import contextvars
import threading
import types

import pytest

from runner.events import (
    BareState,
    BaseEvent,
    EventBus,
    FlowEvent,
    TaskCompletedEvent,
    TaskStartedEvent,
    event_id_of,
    kickoff,
    set_audience,
    use_sequence,
)

DEADLINE = 20.0


@pytest.fixture(autouse=True)
def own_context():
    """Each test has its context to itself."""
    before = kickoff.peek()
    kickoff.enter(None)
    yield
    set_audience(None)
    kickoff.enter(before)


@pytest.fixture
def bus():
    bus = EventBus()
    yield bus
    bus.shutdown()


def event(kind="something", **fields):
    return BaseEvent(type=kind, **fields)


def defined_in(module, heard):
    """A handler that somebody's module defines."""

    def handler(source, event):
        heard.append((module, event.type))

    handler.__module__ = module
    return handler


# -- ids


def test_every_reader_makes_the_same_ids():
    assert event_id_of("r-1", 7) == event_id_of("r-1", 7) != event_id_of("r-2", 7)
    assert event_id_of("r-1", 7) != event_id_of("r-1", 8)
    assert event_id_of("r-1", 0) is None
    assert event_id_of("r-1", -1) is None


# -- a sequence elsewhere


def test_what_is_numbered_elsewhere_is_not_recorded_here(bus):
    bus.enable_recording()
    tapped = []
    bus.tap(lambda source, event, state: tapped.append((event.emission_sequence, state)))
    use_sequence(lambda event: 42, records=False)
    bus.emit(None, event())
    assert bus.runtime_state is None
    assert tapped == [(42, None)]


def test_a_kickoff_inside_is_numbered_there_and_recorded_here(bus):
    bus.enable_recording()
    numbers = iter(range(100, 200))
    use_sequence(lambda event: next(numbers), records=False)
    bus.emit(None, first := event())
    with bus.kickoff_scope() as outermost:
        assert outermost
        bus.emit(None, inside := event())
        assert len(bus.runtime_state.event_record) == 1
    bus.emit(None, last := event())
    assert [one.emission_sequence for one in (first, inside, last)] == [100, 101, 102]
    assert bus.runtime_state is None


def test_what_is_restored_inside_gives_way_again(bus):
    use_sequence(lambda event: 42, records=False)
    restored = BareState()
    bus.set_runtime_state(restored)
    with bus.kickoff_scope():
        with bus.kickoff_scope():  # of another one, in the middle of it
            pass
        bus.emit(None, event())
        assert bus.runtime_state is restored
    bus.emit(None, last := event())
    assert (last.emission_sequence, bus.runtime_state) == (42, None)
    assert len(restored.event_record) == 1


def test_each_event_is_emitted_inside_of_the_guard(bus):
    depth, seen = [], []

    @contextlib.contextmanager
    def guard():
        depth.append(1)
        yield
        depth.pop()

    use_sequence(lambda event: len(depth), guard=guard)
    bus.tap(lambda source, event: seen.append(len(depth)))
    with bus.kickoff_scope():
        bus.emit(None, one := event())
    assert (one.emission_sequence, seen, depth) == (1, [1], [])


def test_a_stop_in_the_source_goes_through_and_leaves_the_scope(bus):
    class Stop(BaseException):
        pass

    def source(event):
        raise Stop

    use_sequence(source)
    with pytest.raises(Stop):
        bus.emit(None, TaskStartedEvent())
    use_sequence(lambda event: 1)
    bus.emit(None, one := event())
    assert one.parent_event_id is None
    # and the lock is free for others
    thread = threading.Thread(target=contextvars.copy_context().run, args=(bus.emit, None, event()))
    thread.start()
    thread.join(DEADLINE)
    assert not thread.is_alive()


# -- telling


def test_telling_changes_and_keeps_nothing(bus):
    state, heard, tapped = BareState(), [], []
    bus.set_runtime_state(state)
    bus.tap(lambda source, event: tapped.append(event))
    bus.on("*")(lambda source, event: heard.append((source, event)))
    told = TaskCompletedEvent(emission_sequence=9, parent_event_id="p", started_event_id="s")
    bus.deliver("me", told).result(DEADLINE)
    assert heard == [("me", told)]
    assert (told.emission_sequence, told.parent_event_id) == (9, "p")
    assert (tapped, len(state.event_record)) == ([], 0)


# -- whose handlers


def test_only_the_audience_hears(bus):
    heard = []
    for module in ("_crew_a.crew", "_crew_a", "_crew_ab.crew", "_crew_b", "shared"):
        bus.register_handler("my_own", defined_in(module, heard))
    set_audience(lambda module: not module.startswith("_crew_") or f"{module}.".startswith("_crew_a."))
    bus.emit(None, event("my_own")).result(DEADLINE)
    assert sorted(heard) == [(module, "my_own") for module in ("_crew_a", "_crew_a.crew", "shared")]
    heard.clear()
    contextvars.Context().run(bus.emit, None, event("my_own")).result(DEADLINE)
    assert len(heard) == 5


def test_whether_somebody_listens(bus):
    assert not bus.listens("task_started")
    bus.register_handler(FlowEvent, defined_in("_crew_a", []))
    assert bus.listens("flow_started")
    assert bus.listens("task_started", "flow_started")
    assert not bus.listens("task_started")
    set_audience(lambda module: module != "_crew_a")
    assert not bus.listens("flow_started")
    bus.on("*")(print)
    assert bus.listens("something_else")


def test_the_handlers_of_a_module_can_be_dropped(bus):
    heard = []
    for module in ("_crew_a.crew", "_crew_a", "_crew_ab"):
        bus.register_handler("my_own", defined_in(module, heard))
    bus.drop("_crew_a")
    bus.emit(None, event("my_own")).result(DEADLINE)
    assert heard == [("_crew_ab", "my_own")]


def test_handlers_go_with_the_code_that_is_unloaded(make, no_module_leaks):
    from runner.bundles import loader
    from runner.events import event_bus

    root = make("one", {"crew.py": """
        from runner.events import event_bus
        event_bus.on("my_own")(lambda source, event: None)
    """})  # fmt: skip
    assert isinstance(loader.load(root, "crew", key="one"), types.ModuleType)
    assert event_bus.listens("my_own")
    assert loader.unload("one")
    assert not event_bus.listens("my_own")
