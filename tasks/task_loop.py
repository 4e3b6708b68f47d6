"""The thread that many tasks share, with its event loop."""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent, greenlet

from runner.core import waiting
from runner.tasks.coroutines import Coroutines, Step, show_own_tasks
from runner.tasks.greenlets import SwitchingAlarm, SwitchingTask, ThreadSlots, current

log = logging.getLogger(__name__)

AHEAD = 16  #: tasks that are taken before those taken earlier have begun, or have the thread that they wait for
LOOKS = 16  #: at what came, while which the tasks that were begun, or stopped, continue before another one is
BRIEF = 0.0001  #: seconds of the processor's time, which a look takes at most after which none of them continued
HOLD = 0.25  #: seconds at most for which no other task begins, because a task loads what those after it use, too
LONG = 0.1  #: seconds for which one task may have the thread before the log says so
BROKEN = 75  #: exit code of a worker whose loop does not run any more


class OneByOne:
    """Calls for a loop, each made when the work that the ones before it started waits, and none while they are held.

    The first is made at once if this is ``eager``. All methods are for the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, eager: bool = False) -> None:
        self._loop, self._eager = loop, eager
        self._queue: deque[Callable[[], object]] = deque()
        self._looks = False
        self._held: asyncio.TimerHandle | None = None

    def add(self, do: Callable[[], object]) -> None:
        """Add a call."""
        self._queue.append(do)
        if not self._looks and self._held is None:
            self._looks = True
            if self._eager:
                self._next()
            else:
                self._look_soon()

    def hold(self, seconds: float) -> None:
        """Make no call until `let_go`, or for so many seconds."""
        self._held = self._loop.call_later(seconds, self.let_go)

    def let_go(self) -> None:
        """Make the calls that are held."""
        if self._held is None:
            return
        self._held.cancel()
        self._held = None
        if self._queue and not self._looks:
            self._looks = True
            self._loop.call_soon(self._look, 1, float("-inf"))  # who held them continues now

    def _next(self) -> None:
        try:
            self._queue.popleft()()
        finally:
            self._look_soon()

    def _look_soon(self) -> None:
        self._loop.call_soon(self._look, 1, time.thread_time())

    def _look(self, looks: int, before: float) -> None:
        if not self._queue or self._held is not None:
            self._looks = False
        elif looks < LOOKS and (now := time.thread_time()) - before > BRIEF:
            self._loop.call_soon(self._look, looks + 1, now)
        else:
            self._next()


async def _keep(*_: object, **__: object) -> None:
    """What shutting down its executor or its asynchronous generators does here: nothing, as all tasks share them."""


def _refuse(*_: object) -> None:
    raise RuntimeError("this event loop is shared by many tasks: Task(pool='process') gives this one a loop of its own")


class TaskLoop:
    """The thread that many tasks share, and its event loop.

    Args:
        places: the maximum number of concurrent tasks.
        threads: how many of them may block in threads of their own.
        tools: how many tool calls have threads, in addition.
    """

    def __init__(self, places: int, threads: int, tools: int) -> None:
        self._threads = threads
        self.for_tasks, self.for_tools = ThreadSlots(threads), ThreadSlots(tools)
        self._ahead = threading.Semaphore(AHEAD)
        self.loop = asyncio.new_event_loop()
        self.restarts = True  #: the loop, where it is stopped: by a task's code, which must not end the others
        self.hub: greenlet = getcurrent()
        self.flights: dict[Hashable, list[SwitchingAlarm]] = {}
        self._loads = 0
        self._free = [SimpleNamespace(place=n) for n in reversed(range(places))]
        self._idle = threading.Event()
        self._idle.set()
        self._active, self._counting = 0, threading.Lock()
        self._turns: deque[Callable[[], None]] = deque()
        # Of many that are handed over at a time, the first has made its call before the second begins, also where it
        # loads their crew file; where each began as soon as the thread was free, it came after ten others.
        self._to_begin, self._to_stop = OneByOne(self.loop), OneByOne(self.loop, eager=True)
        self._thread = threading.Thread(target=self._run, name="tasks", daemon=True)

    def start(self) -> None:
        """Start the thread. From now on, waiting code in this process checks whether it is a task here."""
        waiting.install(current, self)
        show_own_tasks()
        os.register_at_fork(after_in_child=self._forked)
        self._thread.start()

    def _run(self) -> None:
        self.hub = getcurrent()
        asyncio.set_event_loop(self.loop)
        self.loop.set_task_factory(Coroutines(self).new_task)
        self.loop.set_default_executor(ThreadPoolExecutor(self._threads, thread_name_prefix="of-a-task"))
        self.loop.shutdown_default_executor = _keep  # type: ignore[method-assign]  # of this loop alone
        self.loop.shutdown_asyncgens = _keep  # type: ignore[method-assign]  # it would close those of other runs
        self.loop.set_default_executor = _refuse  # type: ignore[method-assign, assignment]  # of this loop alone
        self.loop.run_until_complete = _refuse  # type: ignore[method-assign, assignment]  # of `nest_asyncio`: it hung
        self.loop.set_task_factory = _refuse  # type: ignore[method-assign,assignment]  # of this loop alone
        try:
            while self.restarts:
                self._run_until_stopped()
        except BaseException:  # of the loop itself: no task here would continue, and nothing would say so
            log.critical("the event loop of this worker's tasks failed; starting another", exc_info=True)
            os._exit(BROKEN)

    def _forked(self) -> None:
        """In a process that the code of a coroutine has forked: it ends where it would continue other tasks."""
        code = getcurrent()
        if self.is_running_here() and isinstance(code, Step):
            self.hub = greenlet(code.leave)

    def _run_until_stopped(self) -> None:
        """Run the loop until a task's code stops it, or asks to end the process.

        Stopping it would end all tasks; asking for the process's end only ends the coroutine that does.
        """
        with contextlib.suppress(SystemExit, KeyboardInterrupt):  # asyncio lets them through, as a coroutine's error
            self.loop.run_forever()

    def call(self, do: Callable[..., object], *arguments: Any) -> None:
        """Call it in the loop's thread."""
        with contextlib.suppress(RuntimeError):  # the process ends
            self.loop.call_soon_threadsafe(do, *arguments)

    def begin(self, do: Callable[[], object]) -> None:
        """Start a task. From any thread but the loop's: it waits while other tasks wait to start."""
        self._ahead.acquire()
        with self._counting:
            self._active += 1
            self._idle.clear()
        self.call(self._to_begin.add, partial(self._begin, do))

    def stop(self, do: Callable[[], object]) -> None:
        """Interrupt a task.

        Of a thousand that are stopped at once, each is handed back before the next is notified: notifying all of them
        first took a second, in which other workers could have continued them.
        """
        self._to_stop.add(do)

    def loads(self, more: int) -> None:
        """So many more tasks, or fewer, load what others will use.

        Those others are not to begin only to wait for it, or take its time. They begin if it takes long, as they may be
        of other crews.
        """
        was, self._loads = self._loads, self._loads + more
        if not self._loads:
            self._to_begin.let_go()
        elif not was:
            self._to_begin.hold(HOLD)

    def in_turn(self, turn: Callable[[], None]) -> None:
        """Continue one task for each poll of the connections: however many there are, no connection waits long."""
        self._turns.append(turn)
        if len(self._turns) == 1:
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        try:
            self._turns[0]()
        finally:
            self._turns.popleft()
            if self._turns:
                self.loop.call_soon(self._turn)

    def _begin(self, do: Callable[[], object]) -> None:
        self._ahead.release()
        local = self._free.pop() if self._free else SimpleNamespace(place=None)

        def run() -> None:
            try:
                do()
            except BaseException:
                log.exception("a job failed")
            finally:
                if local.place is not None:
                    self._free.append(local)
                with self._counting:
                    self._active -= 1
                    if not self._active:
                        self._idle.set()

        self.switch(SwitchingTask(self, run, local))

    @property
    def takes_more(self) -> bool:
        """Whether another task would not only wait for a thread, behind those that do."""
        return len(self.for_tasks.queue) < AHEAD

    def switch(self, task: greenlet, exception: type[BaseException] | None = None) -> None:
        """Continue a task until it waits; log if that took long, because the others do not run meanwhile."""
        began = time.monotonic()
        if exception is None:
            task.switch()
        else:
            task.throw(exception)
        if (took := time.monotonic() - began) > LONG:
            log.warning("a task blocked all others on its thread for %.2f s", took)

    def is_running_here(self) -> bool:
        """Whether this is its thread."""
        return threading.get_ident() == self._thread.ident

    def wait_until_idle(self) -> None:
        """Wait until there are no tasks."""
        self._idle.wait()
