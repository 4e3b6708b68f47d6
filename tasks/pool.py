"""Celery's prefork pool, extended with children that can end after a job, or continue without a new message.

A child that retires gets no further job, and is replaced as soon as it has ended. It reports this before it reports
that its job is done, and the pool writes to a child only between jobs: so no job is ever sent to a child that ends.

A child also reports when its task waits for a model: then the pool has one more process until that job is done, as far
as memory allows. So as many processes as configured use the machine's cores, in addition to those that wait.
"""

import contextlib
import gc
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from billiard.heap import BufferWrapper
from billiard.pool import EX_RECYCLE
from celery import platforms
from celery.concurrency import prefork
from celery.concurrency.asynpool import AsynPool
from celery.concurrency.asynpool import Worker as AsynWorker
from kombu.asynchronous import get_event_loop

from runner.core.processes import end_with_parent
from runner.engine import adapters
from runner.tasks import capacity, request
from runner.tasks.descriptors import out_of_the_way

LAST_JOB, CONTINUES, WAITS = 31, 32, 33
"""What a child tells its pool, beside what billiard's own tell: 0 to 4, and Celery's: 15."""


class Child(AsynWorker):
    """The main loop of a pool child."""

    retired = False

    def on_loop_start(self, pid: int) -> None:
        """The child is up, and `retire` can reach it."""
        global _child
        super().on_loop_start(pid)
        _child = self

    def retire(self, adapter: str) -> None:
        """Make the current job its last."""
        if not self.retired:
            self.retired = True
            self.outq.put((LAST_JOB, (self.inqW_fd, adapter)))

    def continues(self, *how: Any) -> None:
        """It has finished a job, and performs another: see `request.continues`."""
        self.outq.put((CONTINUES, how))

    def waits(self) -> None:
        """Its last job waits for a model."""
        if self.retired:
            self.outq.put((WAITS, (self.inqW_fd,)))

    def _make_child_methods(self, *args: Any, **kwargs: Any) -> None:
        super()._make_child_methods(*args, **kwargs)
        wait: Callable[[], Any] = self.wait_for_job  # type: ignore[has-type]  # billiard is untyped

        def wait_unless_retired() -> Any:
            if self.retired:
                _end()
            return wait()

        self.wait_for_job = wait_unless_retired


class Pool(AsynPool):
    """The pool, in the worker's main process."""

    Worker = Child

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _reserve_shared_memory()
        self._most = capacity.slots()
        self._waiting: set[int] = set()  # of those whose task waits, each by where its jobs are written to
        if capacity.needs_files():
            capacity.raise_files()
        gc.collect()
        gc.freeze()  # it stays: a collector that walked through it in a child would give that a copy of it all
        super().__init__(*args, **kwargs)

    def Process(self, *args: Any, **kwargs: Any) -> Any:
        """Create a child that is about to be forked."""
        process = super().Process(*args, **kwargs)
        if self._ctx.get_start_method() == "fork":  # else it is sent to an interpreter
            pass_over_loggers(process)
        return process

    def create_result_handler(self) -> Any:
        """Create the handler of the children's reports."""
        handler = super().create_result_handler()
        handler.state_handlers[LAST_JOB] = self._on_last_job
        handler.state_handlers[CONTINUES] = request.continues
        handler.state_handlers[WAITS] = self._on_wait
        return handler

    def _on_last_job(self, inq: int, adapter: str) -> None:
        self._all_inqueues.discard(inq)
        self._busy_workers.discard(inq)  # the pool counts these against those: it would take a free child for busy
        adapters.preload(adapter)  # where it was not: those that follow have it from here

    # -- those that wait

    def _on_wait(self, inq: int) -> None:
        """A child that continues with its run's next task reports each, and has its additional process already."""
        if inq in self._waiting or self._processes >= self._most or not capacity.has_room(len(self._waiting)):
            return
        if any(inq == one.inqW_fd for one in self._pool):
            self._waiting.add(inq)
            self.grow(1)
            _soon(self.maintain_pool)

    def on_job_ready(self, job: Any, i: Any, obj: Any, inq: int) -> None:
        """Free the slot of the process that took the job, and no other."""
        super().on_job_ready(job, i, obj, inq)
        if inq in self._waiting:
            _soon(self._ended, inq)  # when the place is free

    def _ended(self, inq: int) -> None:
        if inq in self._waiting:
            self._waiting.discard(inq)
            self._processes -= 1
            if self._putlock:
                self._putlock.shrink()

    def _join_exited_workers(self, shutdown: bool = False) -> Any:
        joined = super()._join_exited_workers(shutdown)
        for inq in self._waiting - {one.inqW_fd for one in self._pool}:  # they were killed
            self._ended(inq)
        return joined

    def create_process_queues(self) -> Any:
        """Create the pipes of a new process."""
        queues = super().create_process_queues()
        for one in filter(None, queues):
            for end in (one._reader, one._writer):
                end._handle = out_of_the_way(end._handle)
        return queues

    def _track_child_process(self, proc: Any, hub: Any) -> None:
        if not hasattr(proc, "_sentinel_poll"):
            proc._popen.sentinel = out_of_the_way(proc._popen.sentinel)
            proc._sentinel_poll = out_of_the_way(os.dup(proc._popen.sentinel))
        super()._track_child_process(proc, hub)

    # -- those that end

    def _event_process_exit(self, hub: Any, proc: Any) -> None:
        """Replace a dead child at once.

        The pool learns of its death when its files are closed, often a moment before the kernel can report it. It would
        then find no child to replace, and check again after five seconds.
        """
        await_end(proc.pid)
        super()._event_process_exit(hub, proc)


def pass_over_loggers(process: Any) -> None:
    """Keep billiard from visiting all loggers when a child starts, to give each of their handlers a new lock.

    Python itself does that at the fork. Libraries have hundreds of loggers, and each visit copies a page of memory.
    """
    manager, bootstrap, run = logging.root.manager, process._bootstrap, process.run

    def begin() -> Any:
        loggers, manager.loggerDict = manager.loggerDict, {}

        def run_with_loggers() -> Any:
            manager.loggerDict = loggers
            return run()

        process.run = run_with_loggers
        return bootstrap()

    process._bootstrap = begin


def _reserve_shared_memory() -> None:
    """Allocate the pool's shared memory, of which each child takes a few bytes.

    It is a file that is unlinked at once, but billiard creates a folder for it, which a killed worker would leave
    behind.
    """
    config = vars(multiprocessing.current_process())["_config"]
    if config.get("tempdir") is None:
        config["tempdir"] = tempfile.gettempdir()
        try:
            BufferWrapper(1)  # the block is free again, and the file stays
        finally:
            config["tempdir"] = None


_child: Child | None = None


def install() -> None:
    """Replace Celery's prefork pool by ours."""
    prefork.TaskPool.Pool = Pool
    # Its claims end with its main process: what a child did after that would not count. Where there is cffi, billiard's
    # own would have each child parse C for it: 80 ms, and memory of its own.
    platforms._set_pdeathsig = end_with_parent


def retire(adapter: str) -> None:
    """In a pool child: end after the current job, one of this adapter."""
    if _child is not None:
        _child.retire(adapter)


def retires() -> bool:
    """In a pool child: whether the current job is its last."""
    return _child is not None and _child.retired


def waits() -> None:
    """In a pool child that ends after its job: report that the job waits for a model, and needs no core meanwhile."""
    if _child is not None:
        _child.waits()


def _soon(do: Callable[..., object], *about: object) -> None:
    """Call it in the main process after it has read the children's reports."""
    if (loop := get_event_loop()) is not None:
        loop.call_soon(do, *about)  # type: ignore[no-untyped-call]  # kombu is untyped there


def continues(received: str, runtime: float, id: str, name: str, kwargs: str) -> None:
    """In a pool child: report to the main process that a job begins without a message."""
    if _child is not None:
        _child.continues(received, runtime, id, name, kwargs)


def _end() -> None:
    """End this child now. Its reports are in its pipe, which the pool reads before it looks for lost jobs.

    A crew leaves threads and exit handlers behind, which are not waited for.
    """
    with contextlib.suppress(Exception):
        for handler in logging.getLogger().handlers:
            handler.flush()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(EX_RECYCLE)


def await_end(pid: int, within: float = 0.2) -> bool:
    """Wait briefly until a child has ended and can be reaped. One that only closed its files may live on."""
    end = time.monotonic() + within
    with contextlib.suppress(OSError, AttributeError):  # no such child; no such call (macOS before Python 3.13)
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > end:
                return False
            time.sleep(0.001)
    return True
