"""What passes by itself is waited for: a store that is away, and one that answers that it will not for now.

All that a task asks of the store goes through a client, or a line of one, that waits (`connection.patient`). What
watches and may not wait asks through one that does not (`connection.connect`), meets `NOT_NOW`, and tells `outage`.
"""

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.sentinel import MasterNotFoundError

log = logging.getLogger(__name__)

T = TypeVar("T")

REASONS = {
    "OOM": "its memory is full",
    "MISCONF": "it cannot save to its disk",
    "NOREPLICAS": "too few replicas are connected to it",
    "READONLY": "it is a replica now",
    "UNBLOCKED": "it has become a replica",
    "MASTERDOWN": "its master is away",
    "CLUSTERDOWN": "its cluster is down",
    "TRYAGAIN": "its cluster is moving keys",
    "BUSY": "a script keeps it busy",
}
"""The codes of refusals that pass, and what they say of the server. One that loads its data counts as away."""

MOVED = frozenset({"READONLY", "UNBLOCKED"})
"""Codes after which another server may be the one to write to: a new connection finds it."""

_STRIPPED = {
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    MasterDownError: "MASTERDOWN",
    ClusterDownError: "CLUSTERDOWN",
    TryAgainError: "TRYAGAIN",
}
"""The codes that redis-py takes off the text: it has classes for them."""


class NotNow(ResponseError):
    """The server answered that it will not for now. Nothing was done; the same call may succeed later."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code

    @property
    def moved(self) -> bool:
        """Whether a new connection may find a server that does not refuse."""
        return self.code in MOVED


NOT_NOW = (ConnectionError, TimeoutError, NotNow)
"""Errors after which the same call may succeed: every operation here may be repeated."""

REFUSED = ResponseError
"""The server answered, and said no: no permission, or, as a `NotNow`, not now."""


def not_now(error: object) -> NotNow | None:
    """The refusal that passes, if an answer of the server is one, also out of a script: both begin with its code."""
    if not isinstance(error, ResponseError):
        return None
    if isinstance(error, NotNow):
        return error
    code, text = _STRIPPED.get(type(error)), str(error)
    if code is None:
        code, _, text = text.partition(" ")
    return NotNow(code, text) if code in REASONS else None


def noticing(call: Callable[[], T]) -> T:
    """Call it. Raises a `NotNow` where it raises what is one."""
    try:
        return call()
    except ResponseError as error:
        raise not_now(error) or error from None


def in_words(error: BaseException) -> str:
    """What is waited for."""
    if isinstance(error, NotNow):
        return f"it refuses, for {REASONS[error.code]} ({error.args[0]})"
    if isinstance(error, BusyLoadingError):
        return "it is loading its data"
    return f"it cannot be reached ({brief(error)})"


def brief(error: BaseException) -> str:
    """What it says, in a line; one of sentinels would print clients."""
    if isinstance(error, MasterNotFoundError):
        return "no sentinel that answers knows a master of that name"
    return str(error).rstrip(". ")


class Outage:
    """When this process waits for the store: one line of its log when that begins, and one when it ends.

    A call that got through when it was first repeated has waited for nothing worth a line.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, float] = {}  # when it began, by who waits: no lock, for signals come in between
        self._told = threading.Lock()
        self._since = self._total = 0.0

    @property
    def is_on(self) -> bool:
        """Whether somebody waits now."""
        return bool(self._waiting)

    @property
    def seconds(self) -> float:
        """For how long calls of this process have waited in all; those side by side count once."""
        return self._total + (time.monotonic() - self._since if self._waiting else 0.0)

    def begins(self, who: object, error: BaseException) -> None:
        """A call failed, and will be repeated."""
        now = time.monotonic()
        if who not in self._waiting:
            if not self._waiting:
                self._since = now
            self._waiting[who] = now
        elif self._told.acquire(blocking=False):
            log.warning("waiting for the store: %s", in_words(error))

    def ends(self, who: object, *, reached: bool = True) -> None:
        """It is not repeated any more; ``reached`` unless it gave up."""
        if self._waiting.pop(who, None) is None or self._waiting:
            return
        now = time.monotonic()
        took, self._since = now - self._since, now
        self._total += took
        with contextlib.suppress(RuntimeError):  # nothing was told; or another thread, that ended with this one, tells
            self._told.release()
            if reached:
                log.warning("the store is back after %.1f s", took)


outage = Outage()
os.register_at_fork(after_in_child=lambda: outage.__init__())  # type: ignore[misc]


def patiently(
    call: Callable[[], T],
    *,
    limit: float | None = None,
    first: float = 0.02,
    most: float = 1.0,
    refused: Callable[[NotNow], object] | None = None,
) -> T:
    """Repeat ``call`` while the store is away or refuses for now, for ``limit`` seconds (``None``: for ever).

    Pauses are jittered, and grow from ``first`` to ``most`` seconds. ``refused`` hears of each refusal.
    """
    end = None if limit is None else time.monotonic() + limit
    pause = first
    who: object = None
    reached = False
    try:
        while True:
            try:
                answer = noticing(call)
                reached = True
                return answer
            except NOT_NOW as error:
                if isinstance(error, AuthenticationError) or (end is not None and time.monotonic() + pause > end):
                    raise
                who = who or object()
                outage.begins(who, error)
                if refused is not None and isinstance(error, NotNow):
                    refused(error)
            except ResponseError:
                reached = True
                raise
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, most)
    finally:
        if who is not None:
            outage.ends(who, reached=reached)
