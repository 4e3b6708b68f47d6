"""The bus at the end of a process, and in a forked one."""

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from runner.core.fork_safe_lock import ForkSafeLock
from runner.events import BaseEvent, EventRecord

DEADLINE = 20.0


def run(code):
    """What a process that runs this code prints."""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
    return found.stdout.split()


def forked(work):
    """What ``work`` returned in a forked child, which ends without a hand from here; it has a deadline."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.write(writing, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], DEADLINE)
        said = os.read(reading, 1000).decode() if ready else "nothing in time"
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return said


def emit_with_both(bus, heard):
    async def ahandler(source, event):
        heard.append("async")

    bus.register_handler("tea", ahandler)
    bus.on("tea")(lambda source, event: heard.append("sync"))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_can_emit_after_its_parent_did(bus):
    heard = []
    emit_with_both(bus, heard)
    bus.emit(None, BaseEvent(type="tea")).result(DEADLINE)

    def child():
        heard.clear()
        future = bus.emit(None, BaseEvent(type="tea"))
        future.result(DEADLINE)
        return sorted(heard), bus.flush(DEADLINE)

    assert forked(child) == "(['async', 'sync'], True)"
    heard.clear()
    bus.emit(None, BaseEvent(type="tea")).result(DEADLINE)
    assert sorted(heard) == ["async", "sync"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_in_the_middle_of_everything(bus):
    """Threads emit, handlers run, the record is written and dumped; each child can do the same at once."""
    heard, stop = [], threading.Event()
    emit_with_both(bus, heard)
    bus.enable_recording()

    def keep_busy():
        with bus.kickoff_scope():
            while not stop.is_set():
                bus.emit(None, BaseEvent(type="tea"))
                bus.runtime_state.event_record.model_dump_json()
                if len(bus.runtime_state.event_record) > 50:
                    bus.reset_runtime_state()

    def child():
        with bus.kickoff_scope():
            bus.emit(None, BaseEvent(type="tea")).result(DEADLINE)
            return len(bus.runtime_state.event_record)

    threads = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert [forked(child) for _ in range(15)] == ["1"] * 15
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_lock_that_another_thread_held_is_open_in_a_forked_child():
    lock, record, held, go = ForkSafeLock(), EventRecord(), threading.Event(), threading.Event()

    def hold():
        with lock, record._lock:
            held.set()
            go.wait(DEADLINE)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(DEADLINE)
    try:
        assert not lock.acquire(blocking=False)

        def child():
            with lock, lock:
                record.add(BaseEvent(type="tea"))
            return len(record)

        assert forked(child) == "1"
    finally:
        go.set()
        holder.join()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_lock_that_the_forking_thread_held_can_be_let_go():
    lock = ForkSafeLock()
    with lock:

        def child():
            with lock:
                pass
            lock.release()
            return lock.acquire(blocking=False)

        assert forked(child) == "True"
    with pytest.raises(RuntimeError):
        lock.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_lock_that_was_made_in_a_forked_child_is_not_let_go_where_nobody_holds_it():
    def child():
        with pytest.raises(RuntimeError):
            ForkSafeLock().release()
        return "refused"

    assert forked(child) == "refused"


def test_what_handlers_do_is_done_before_the_process_ends():
    said = run(
        """
        import atexit, sys, threading
        from runner.events import BaseEvent, event_bus
        go = threading.Event()
        say = sys.stdout.write  # a line at once: print() writes its end apart, and two threads say something

        @event_bus.on("tea")
        def slowly(source, event):
            go.wait()
            event_bus.emit(None, BaseEvent(type="coffee"))
            say("sync\\n")

        @event_bus.on("tea")
        async def aslowly(source, event):
            import asyncio
            while not go.is_set():
                await asyncio.sleep(0.001)
            say("async\\n")

        event_bus.emit(None, BaseEvent(type="tea"))
        print("over")
        atexit.register(go.set)
        """
    )
    assert (said[0], set(said[1:])) == ("over", {"sync", "async"})


def test_what_is_emitted_while_the_process_ends_is_heard():
    said = run(
        """
        import atexit
        from runner.events import BaseEvent, event_bus
        event_bus.on("tea")(lambda source, event: print(event.source_type))
        atexit.register(lambda: event_bus.emit(None, BaseEvent(type="tea", source_type="late")))
        """
    )
    assert said == ["late"]


def test_a_handler_that_never_ends_does_not_keep_the_process():
    said = run(
        """
        import logging, threading
        from runner.events import BaseEvent, bus, event_bus
        logging.disable()
        bus.FLUSH_SECONDS = 0.01
        event_bus.on("tea")(lambda source, event: threading.Event().wait())
        event_bus.emit(None, BaseEvent(type="tea"))
        """
    )
    assert said == []


def test_the_bus_costs_a_crew_file_nothing():
    code = """
import sys
from runner import Agent, Crew, Task
print(*sorted(name for name in sys.modules if name.startswith('runner.events')))
"""
    assert run(code) == ["runner.events", "runner.events.types"]
