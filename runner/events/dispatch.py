"""Runs handlers: sync ones on a few daemon threads, async ones on a loop of their own; a forked child has neither.

Each handler gets its events one after the other, in the order of emission; different handlers run concurrently.
"""

import contextvars
import inspect
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FunctionType
from typing import TYPE_CHECKING, Any

from runner.core.annotations import signature_of

if TYPE_CHECKING:
    import asyncio

__all__ = ["Call", "Dispatcher", "call", "is_async", "takes_state"]

logger = logging.getLogger("runner.events")

Handler = Callable[..., Any]
Call = Callable[[], Any]

MAX_THREADS = 8
CLOSE_SECONDS = 5.0  #: how long the end waits for cancelled async handlers
IDLE_SECONDS = 5.0  #: how long a thread without work waits for more before it ends

_delivering: contextvars.ContextVar[bool] = contextvars.ContextVar("runner_delivering", default=False)


def is_async(handler: Handler) -> bool:
    """Whether calling it returns a coroutine."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - not whether it can be called: whether that is a coroutine function


def takes_state(handler: Handler) -> bool:
    """Whether it takes ``(source, event, state)``, not just ``(source, event)``."""
    if isinstance(handler, FunctionType) and not handler.__dict__:  # nothing says that its signature is another's
        return handler.__code__.co_argcount >= 3
    try:
        parameters = signature_of(handler).parameters.values()
    except (TypeError, ValueError):
        return False
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(named) >= 3


def name_of(handler: Handler) -> str:
    """Return its name for log lines."""
    return getattr(handler, "__qualname__", None) or repr(handler)


class _Delivery:
    """An event that is being delivered to its handlers."""

    def __init__(self, count: int) -> None:
        self.future: Future[None] = Future()
        self.future.set_running_or_notify_cancel()
        self._left = count
        self._lock = threading.Lock()

    def one_done(self) -> None:
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self.future.set_result(None)


class Dispatcher:
    """Runs handlers."""

    def __init__(self) -> None:
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._work = threading.Condition(threading.RLock())
        self._lanes: dict[Handler, deque[Callable[[], None]]] = {}
        self._ready: deque[Handler] = deque()
        self._threads = 0
        self._idle = 0
        self.pending: set[Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._tasks: set[Any] = set()

    def submit(self, calls: list[tuple[Handler, Call]]) -> "Future[None]":
        """Queue each call for its handler. The future is done when all calls are, however they ended."""
        delivery = _Delivery(len(calls))
        with self._work:
            self.pending.add(delivery.future)
            for handler, call in calls:
                context = contextvars.copy_context()
                context.run(_delivering.set, True)
                if is_async(handler):
                    self._on_loop(handler, call, context, delivery)
                else:
                    self._on_thread(handler, call, context, delivery)
        delivery.future.add_done_callback(self._forget)
        return delivery.future

    def submit_in_turn(self, steps: list[list[tuple[Handler, Call]]]) -> "Future[None]":
        """Queue the calls of each group after those of the group before it. The future is done when all are."""
        whole: Future[None] = Future()
        whole.set_running_or_notify_cancel()
        context = contextvars.copy_context()
        with self._work:
            self.pending.add(whole)
        whole.add_done_callback(self._forget)

        def begin(number: int) -> None:
            if number == len(steps):
                whole.set_result(None)
                return
            done = context.copy().run(self.submit, steps[number])
            done.add_done_callback(lambda _: begin(number + 1))

        begin(0)
        return whole

    def _forget(self, future: "Future[None]") -> None:
        with self._work:
            self.pending.discard(future)

    # -- threads

    def _on_thread(self, handler: Handler, call: Call, context: contextvars.Context, delivery: _Delivery) -> None:
        def run() -> None:
            try:
                context.run(call)
            except BaseException:
                logger.exception("the event handler %s failed", name_of(handler))
            finally:
                delivery.one_done()

        lane = self._lanes.get(handler)
        if lane is not None:
            lane.append(run)
            return
        self._lanes[handler] = deque([run])
        self._ready.append(handler)
        if self._idle >= len(self._ready):
            self._work.notify()
        elif self._threads < MAX_THREADS:
            self._start_thread()

    def _start_thread(self) -> None:
        self._threads += 1
        thread = threading.Thread(target=self._run_thread, args=(self._work,), name="runner-events", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is about to end: no more threads
            self._threads -= 1
            if self._threads == 0:
                while self._ready:
                    self._drain(self._ready.popleft())

    def _run_thread(self, work: threading.Condition) -> None:
        while True:
            with work:
                while not self._ready:
                    self._idle += 1
                    came = work.wait(IDLE_SECONDS)
                    self._idle -= 1
                    if not came and not self._ready:
                        self._threads -= 1
                        return
                handler = self._ready.popleft()
            self._drain(handler)

    def _drain(self, handler: Handler) -> None:
        while True:
            with self._work:
                lane = self._lanes[handler]
                if not lane:
                    del self._lanes[handler]
                    return
                run = lane.popleft()
            run()

    # -- the loop

    def _on_loop(self, handler: Handler, call: Call, context: contextvars.Context, delivery: _Delivery) -> None:
        loop = self._running_loop()

        async def run() -> None:
            try:
                await call()
            except Exception:
                logger.exception("the event handler %s failed", name_of(handler))

        def begin() -> None:
            task = loop.create_task(run(), context=context)
            self._keep(task)
            task.add_done_callback(lambda _: delivery.one_done())

        loop.call_soon_threadsafe(begin)

    def _running_loop(self) -> "asyncio.AbstractEventLoop":
        if self._loop is None:
            import asyncio  # costly, and most processes have no async handler

            self._loop = asyncio.new_event_loop()
            self._loop_thread = threading.Thread(target=self._run_loop, args=(self._loop,), daemon=True)
            self._loop_thread.name = "runner-events-loop"
            self._loop_thread.start()
        return self._loop

    def _run_loop(self, loop: "asyncio.AbstractEventLoop") -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        loop.run_forever()

    # -- the end

    def flush(self, timeout: float | None) -> bool:
        """Wait until all earlier calls have run. Called from a handler, it does not wait."""
        with self._work:
            pending = set(self.pending)
        if not pending:
            return True
        if _delivering.get():
            return False
        return not wait(pending, timeout=timeout).not_done

    def close(self) -> None:
        """Stop the loop and cancel what still runs on it. Threads end by themselves."""
        with self._work:
            loop, thread = self._loop, self._loop_thread
            self._loop = self._loop_thread = None
        if loop is None or thread is None:
            return

        async def stop() -> None:
            import asyncio

            tasks = self._tasks - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # and who waits for them has been told
            loop.stop()

        stopping = stop()
        loop.call_soon_threadsafe(lambda: self._keep(loop.create_task(stopping)))
        if thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)
            if not thread.is_alive():
                loop.close()

    def _keep(self, task: Any) -> None:
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)

    def _in_child(self) -> None:
        # The loop's file descriptors are the parent's too: it is neither closed nor collected here.
        _left_behind.append((self._loop, self._tasks, self._lanes, self.pending))
        self._reset()


_all: "weakref.WeakSet[Dispatcher]" = weakref.WeakSet()
_forking: list[Dispatcher] = []
_left_behind: list[Any] = []


def _before_fork() -> None:
    # No thread is in the middle of a change when the child's copy is made.
    _forking[:] = sorted(_all, key=id)
    for dispatcher in _forking:
        dispatcher._work.acquire()


def _after_in_parent() -> None:
    for dispatcher in _forking:
        dispatcher._work.release()
    _forking.clear()


def _after_in_child() -> None:
    for dispatcher in _forking:
        dispatcher._in_child()
    _forking.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def call(handler: Handler, source: Any, event: Any, state: Any) -> Any:
    """Call a handler with as many arguments as it takes."""
    return handler(source, event, state) if takes_state(handler) else handler(source, event)
