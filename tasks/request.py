"""A job as Celery's users see it: its request in the worker's main process, and its failure."""

import logging
import sys
from typing import Any

from celery.worker import state
from celery.worker.request import Request

log = logging.getLogger(__name__)

WATCHED = "watched"  #: in what Celery gives with a message: whether its events are received
UNUSED = ("properties", "argsrepr", "kwargsrepr")  #: what nothing reads of it, and thousands are kept
NO_HEADERS: dict[str, Any] = {}  #: of its own: Celery would copy all it does not know


class JobRequest(Request):
    """A message, acknowledged only to a broker other than the store. Its process may continue without a message."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._current = self.id
        groups = self._eventer.groups if self._eventer else {"worker"}  # an empty one is all there are
        given: dict[str, Any] = self._request_dict  # type: ignore[has-type]  # Celery is untyped
        if type(arguments := given["kwargs"]) is dict:  # decoded with names of its own: all share them
            items = list(zip(map(sys.intern, arguments), arguments.values(), strict=True))
            arguments.clear()
            arguments.update(items)
        kept = {sys.intern(name): one for name, one in given.items() if one is not None and name not in UNUSED}
        self._request_dict = kept | {WATCHED: not groups or "task" in groups, "headers": NO_HEADERS}

    @property
    def reply_to(self) -> str | None:
        """Where the sender waits for a result."""
        found: str | None = self._request_dict.get("reply_to")
        return found

    @property
    def correlation_id(self) -> str | None:
        """By what the sender knows it."""
        found: str | None = self._request_dict.get("correlation_id")
        return found

    @property
    def request_dict(self) -> dict[str, Any]:
        """What Celery gives with a message, of its properties those that others read."""
        given: dict[str, Any] = self._request_dict
        ids = {"reply_to": self.reply_to, "correlation_id": self.correlation_id}
        properties = {**ids, "delivery_info": self.delivery_info, "priority": self.delivery_info["priority"]}
        return {**ids, "properties": properties, "argsrepr": self.argsrepr, "kwargsrepr": self.kwargsrepr, **given}

    def continues(self, runtime: float, id: str, name: str, kwargs: str) -> None:
        """Its job has succeeded, and its process performs another."""
        self.send_event("task-succeeded", result="None", runtime=runtime)
        self._current = id
        about = {"name": name, "args": "()", "kwargs": kwargs, "root_id": id, "parent_id": None}
        self.send_event("task-received", **about, retries=0, eta=None, expires=None)
        self.send_event("task-started")

    def send_event(self, type: str, **fields: Any) -> None:
        """Send Flower an event about the job that its process performs."""
        if self._eventer and self._eventer.enabled and self.task.send_events:
            self._eventer.send(type, uuid=self._current, **fields)

    def revoked(self) -> bool:
        """Always False: a dropped job that a run waits for would be redelivered. ``runner cancel`` ends a run."""
        if self.id in state.revoked:
            log.warning("job %s was revoked, which does not end its run: use runner cancel", self.id)
        return False

    def acknowledge(self) -> None:
        """Does nothing on the state's own Redis."""
        if self.task.has_own_broker:
            self.acknowledged = True
            # What would tell it is let go of: thousands of requests are kept at a time.
            self._message = self._on_ack = self._on_reject = self._body = None
        else:
            super().acknowledge()

    def on_failure(self, exc_info: Any, *args: Any, **options: Any) -> None:
        """Report where the crew's code raised, not where this package did."""
        _tell_where(exc_info, exc_info.exception)
        super().on_failure(exc_info, *args, **options)

    def on_retry(self, exc_info: Any) -> None:
        """The same for an attempt that is not the last one."""
        _tell_where(exc_info, exc_info.exception.exc)
        super().on_retry(exc_info)


class TaskFailed(Exception):
    """Makes Flower show a failed task as failed: with its error in one line, and files, lines and functions."""

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
    """In the main process: the process of this message has finished its job, and performs another."""
    request = state.requests.get(received)
    if isinstance(request, JobRequest):
        request.continues(runtime, id, name, kwargs)
