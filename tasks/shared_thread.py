"""The pool for tasks that mostly wait: thousands of them in one thread."""

import gc
import os
import time
from collections.abc import Callable
from typing import Any

from celery.app.trace import fast_trace_task
from celery.concurrency.base import BasePool, apply_target

from runner.tasks import capacity, jobs
from runner.tasks.task_loop import TaskLoop

ALLOCATED = 10_000  #: objects more than were freed, after which the youngest are looked through: those of 20 agents


class TaskPool(BasePool):
    """A Celery pool."""

    body_can_be_buffer = True
    signal_safe = False

    @property
    def num_processes(self) -> int:
        """The number of messages that Celery may take: none while tasks wait for a thread that would run them."""
        return self.limit if self.tasks.takes_more else 0

    def on_start(self) -> None:
        """Start the thread."""
        capacity.raise_files()  # each call of a model that is out has a connection
        _collect_seldom()
        threads = capacity.threads()
        self.tasks = TaskLoop(self.limit, min(self.limit, threads), threads)
        self.tasks.start()

    def prepare(self) -> None:
        """Prepare the thread for its first task."""
        self.tasks.begin(jobs.process().prepare)

    def on_stop(self) -> None:
        """Wait until there are no tasks."""
        self.tasks.wait_until_idle()

    def on_apply(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        callback: Callable[..., Any] | None = None,
        accept_callback: Callable[..., Any] | None = None,
        **_: Any,
    ) -> None:
        """Run a job.

        No `partial`, and no call with ``*args``: each would take 500 bytes more of each task that waits, as in
        `jobs.JobTask`.
        """
        if args is None or accept_callback is None or callback is None or target is not fast_trace_task:
            self.tasks.begin(lambda: apply_target(target, args, kwargs, callback, accept_callback))
            return
        request = args[2]  # which has been decoded

        def run() -> None:
            accept_callback(os.getpid(), time.monotonic())
            callback(jobs.trace(request))

        self.tasks.begin(run)


def _collect_seldom() -> None:
    """Collect garbage rarely: a waiting agent keeps hundreds of objects, none of which is garbage.

    A collector that visits them for each additional agent takes a sixth of the cost of taking an agent over, and delays
    all of them.
    """
    gc.collect()
    gc.freeze()  # what is imported stays
    gc.set_threshold(max(ALLOCATED, gc.get_threshold()[0]), *gc.get_threshold()[1:])
