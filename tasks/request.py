"""A job as Celery's users see it: its request in the worker's main process, and its failure."""

import logging
from typing import Any

from celery.worker import state
from celery.worker.request import Request

from runner.tasks.app import own_broker

log = logging.getLogger(__name__)

WATCHED = "watched"  #: in what Celery gives with a message: whether its events are received


class JobRequest(Request):
    """A message, acknowledged only to another broker. Its process may continue with jobs that came without one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._current = self.id
        groups = self._eventer.groups if self._eventer else {"worker"}  # an empty one is all there are
        self._request_dict[WATCHED] = not groups or "task" in groups

    def continues(self, runtime: float, id: str, name: str, kwargs: str) -> None:
        """The job that it was at has succeeded, and its process is at another."""
        self.send_event("task-succeeded", result="None", runtime=runtime)
        self._current = id
        about = {"name": name, "args": "()", "kwargs": kwargs, "root_id": id, "parent_id": None}
        self.send_event("task-received", **about, retries=0, eta=None, expires=None)
        self.send_event("task-started")

    def send_event(self, type: str, **fields: Any) -> None:
        """Tell Flower of the job that its process is at."""
        if self._eventer and self._eventer.enabled and self.task.send_events:
            self._eventer.send(type, uuid=self._current, **fields)

    def revoked(self) -> bool:
        """Never: a job that a run waits for would be sent again, to be dropped again. ``runner cancel`` ends a run."""
        if self.id in state.revoked:
            log.warning("job %s was revoked, which does not end its run: use runner cancel", self.id)
        return False

    def acknowledge(self) -> None:
        """Nothing to tell the state's own Redis."""
        if own_broker():
            self.acknowledged = True
            # What would tell it is let go of: thousands of requests are kept at a time.
            self._message = self._on_ack = self._on_reject = None
        else:
            super().acknowledge()

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> None:
        """Flower is told where the crew's code raised, not where we did."""
        _tell_where(exc_info, exc_info.exception)
        super().on_failure(exc_info, *args, **options)

    def on_retry(self, exc_info: Any) -> None:
        """The same of an attempt that is not the last one."""
        _tell_where(exc_info, exc_info.exception.exc)
        super().on_retry(exc_info)


class TaskFailed(Exception):
    """Lets Flower show a failed task as failed: with its error in a line, and the files, lines and functions of it."""

    def __init__(self, reason: str, where: str) -> None:
        super().__init__(reason, where)
        self.reason, self.where = reason, where

    def __str__(self) -> str:
        return self.reason

    __repr__ = __str__


def _tell_where(exc_info: Any, error: Any) -> None:
    error = getattr(error, "exc", error)  # as it comes from a pool's child
    if isinstance(error, TaskFailed):
        exc_info.traceback = error.where


def continues(received: str, runtime: float, id: str, name: str, kwargs: str) -> None:
    """In the main process: who does the job of this message has done it, and does another."""
    request = state.requests.get(received)
    if isinstance(request, JobRequest):
        request.continues(runtime, id, name, kwargs)
