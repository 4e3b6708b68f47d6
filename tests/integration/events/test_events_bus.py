"""The bus: who is told of an event, where, and in which order; what is kept, and when."""

import asyncio
import contextlib
import contextvars
import functools
import logging
import threading
from unittest.mock import Mock

import pytest

from runner.events import (
    BareState,
    BaseEvent,
    FlowEvent,
    FlowFinishedEvent,
    FlowStartedEvent,
    TaskCompletedEvent,
    TaskFailedEvent,
    TaskStartedEvent,
)

DEADLINE = 20.0


def event(kind="something", **fields):
    return BaseEvent(type=kind, **fields)


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
    assert threading.active_count() <= before  # those of other tests may end


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
    assert caplog.messages == ["the event bus is shut down: my_own is not delivered"] * 3


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
    assert bus.flush(DEADLINE), "what was cancelled is not waited for"
