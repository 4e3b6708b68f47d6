"""Waits out transient failures: a store that cannot be reached, and one that refuses for now.

All that a task asks of the store goes through a client, or a line of one, that waits (`connection.patient`). What
watches and may not wait asks through one that does not (`connection.connect`); it tells `outage` of the
`TRANSIENT_ERRORS` that it meets.
"""

import contextlib
import heapq
import itertools
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)
from redis.sentinel import MasterNotFoundError

from runner.core import waiting
from runner.core.backoff import Backoff
from runner.core.errors import Stop, StoreUnreachable

log = logging.getLogger(__name__)

T = TypeVar("T")


class Refusal(NamedTuple):
    """What a code says of a server that refuses for now: why, what a person can do, and whether it serves reads."""

    why: str
    remedy: str
    what: str = "everything"


_PROMOTE = "Name the master, or promote this one (REPLICAOF NO ONE)."
_CLUSTER = "Start the masters of all its slots, or replicas of them: `redis-cli --cluster check` says what is missing."
_OTHERS = "Find out who else writes to its keys: a log of the runner says which it removed."
_ALLOW = "Allow this user what docs/operations.md lists (ACL SETUSER)."
_LOGIN = "Let this user in again (ACL SETUSER), or restart with a user and password in the URL that it accepts."
_MOVING = "Wait until its slot has moved; `redis-cli --cluster fix` ends a move that was interrupted."

REFUSALS = {
    "OOM": Refusal("its memory is full", "Raise its maxmemory, or delete data it need not keep.", "writes"),
    "MISCONF": Refusal("it cannot save to its disk", "Make room on its disk; its log says what is wrong.", "writes"),
    "NOREPLICAS": Refusal(
        "too few replicas are connected to it", "Start its replicas, or lower min-replicas-to-write.", "writes"
    ),
    "READONLY": Refusal("it is a replica now", _PROMOTE, "writes"),
    "UNBLOCKED": Refusal("it has become a replica", _PROMOTE, "writes"),
    "LOADING": Refusal("it is loading its data", "Wait until it has finished: its log shows the progress."),
    "MASTERDOWN": Refusal("its master is down", f"Start the master. {_PROMOTE}"),
    "CLUSTERDOWN": Refusal("its cluster is down", _CLUSTER),
    "MOVED": Refusal("another node of its cluster has the keys", _MOVING),
    "ASK": Refusal("its cluster is moving keys", _MOVING),
    "TRYAGAIN": Refusal("its cluster is moving keys", _MOVING),
    "WRONGTYPE": Refusal("one of its keys was overwritten with another type", _OTHERS),
    "NOPERM": Refusal("its access list forbids what this user needs", _ALLOW),
    "NOAUTH": Refusal("it requires a password", _LOGIN),
    "WRONGPASS": Refusal("it knows no such user, or another password", _LOGIN),
    "BUSY": Refusal("a script keeps it busy", "Wait until it ends, or end it with SCRIPT KILL."),
}
"""The refusals that pass, by the code that an answer begins with."""

OVERWRITTEN = "WRONGTYPE"
"""The code of the refusal that passes because who is refused mends it."""

MENDED = 10.0
"""Within so many seconds it is removed: else it is a key that could not be."""

NOT_LET_IN = frozenset({"NOAUTH", "WRONGPASS"})
"""Codes of a server that does not take the user and password in the URL."""

FORBIDDEN = NOT_LET_IN | {"NOPERM"}
"""Codes of a server whose access list is not what the user in the URL needs: an operator has to change one of them."""

_OPTIONAL = re.compile(r"'(wait|watch|unwatch|multi|exec|info|config|client\|(list|unblock|setinfo))\b")
"""Commands without which all works: who may not use them does not wait for that."""

_IN_SCRIPT = "ACL failure in script"
"""Begins the text where it is a command of a script that the access list forbids."""

MOVED = frozenset({"READONLY", "UNBLOCKED", "MOVED", "CLUSTERDOWN"})
"""Codes after which another server may be the one to write to: a new connection finds it."""

_DISCARDED = "Transaction discarded because of: "
"""Stands before the code where EXEC is refused though the commands before it were taken."""

_STRIPPED = {
    OutOfMemoryError: "OOM",
    ReadOnlyError: "READONLY",
    MasterDownError: "MASTERDOWN",
    ClusterDownError: "CLUSTERDOWN",
    TryAgainError: "TRYAGAIN",
    NoPermissionError: "NOPERM",
}
"""The codes that redis-py takes off the text: it has classes for them."""


class NotNow(ResponseError):
    """The server answered that it will not for now. Nothing was done; the same call may succeed later."""

    mended = False
    """Whether keys that hold another type were removed because of it."""

    def __init__(self, code: str, text: str) -> None:
        self.said = f"{code} {text}"  # redis-py writes into a pipeline's errors which command it was
        super().__init__(self.said)
        self.code = code

    @property
    def moved(self) -> bool:
        """Whether a new connection may find a server that does not refuse."""
        return self.code in MOVED

    @property
    def overwritten(self) -> bool:
        """Whether it is for a key that holds another type: it passes where that is removed (`overwritten`)."""
        return self.code == OVERWRITTEN


TRANSIENT_ERRORS = (ConnectionError, TimeoutError, NotNow)
"""Errors after which the same call may succeed: every operation here may be repeated."""

REFUSES = (BusyLoadingError, NotNow)
"""Those of a server that answers: who is away may be away for long, which a person is told at once."""

REFUSED = ResponseError
"""The server answered, and said no: no permission, or, as a `NotNow`, not now."""


def not_now(error: object) -> NotNow | None:
    """The refusal that passes, if an answer of the server is one, also out of a script: both begin with its code."""
    if isinstance(error, AuthenticationError):
        return NotNow("NOAUTH" if _wants_password(str(error)) else "WRONGPASS", str(error))
    if not isinstance(error, ResponseError):
        return None
    if isinstance(error, NotNow):
        return error
    code, text = _STRIPPED.get(type(error)), str(error)
    if _IN_SCRIPT in text[:30]:
        code = "NOPERM"
    if code == "NOPERM" and _OPTIONAL.search(text):
        return None
    if code is None:
        code, _, text = text.removeprefix(_DISCARDED).partition(" ")
    return NotNow(code, text) if code in REFUSALS else None


def forbidden(error: object) -> bool:
    """Whether it is a refusal that lasts until an operator changes the server's access list, or the user in the URL."""
    return isinstance(error, NotNow) and error.code in FORBIDDEN


def noticing(call: Callable[[], T]) -> T:
    """Call it. Raises a `NotNow` where it raises what is one."""
    try:
        return call()
    except (ResponseError, AuthenticationError) as error:
        raise not_now(error) or error from None


def format_store_error(error: BaseException) -> str:
    """Say in words what a command waits for."""
    if isinstance(error, NotNow):
        refusal = REFUSALS[error.code]
        return f"it refuses {refusal.what}, because {refusal.why} ({error.said})"
    if isinstance(error, BusyLoadingError):
        return f"it refuses everything, because {REFUSALS['LOADING'].why}"
    if isinstance(error, StoreUnreachable):  # says which
        return str(error)
    return f"it cannot be reached ({brief(error)})"


def remedy(error: BaseException) -> str:
    """Return what a person can do about an error of the store."""
    if isinstance(error, NotNow):
        return REFUSALS[error.code].remedy
    if isinstance(error, BusyLoadingError):
        return REFUSALS["LOADING"].remedy
    return "Start it, or name another with --redis-url."


def brief(error: BaseException) -> str:
    """Return what an error says, in one line."""
    if type(error) is MasterNotFoundError:  # kombu's: it would print clients
        return "no reachable sentinel knows a master of that name"
    text = str(error).rstrip(". ")
    if forbidden(error):
        text = text.partition(" ")[2]
    return "it requires a password" if _wants_password(text) else text


def _wants_password(text: str) -> bool:
    return text.startswith(("HELLO must be called", "Authentication required"))


class Outage:
    """When this process waits for the store: one line of its log when that begins, and one when it ends.

    A call that got through when it was first repeated has waited for nothing worth a line.
    """

    def __init__(self) -> None:
        self.waiting: dict[object, float] = {}
        """What waits now, and since when. There is no lock, for signals come in between."""
        self._told = threading.Lock()
        self._since = self._total = 0.0

    @property
    def seconds(self) -> float:
        """For how long calls of this process have waited in all; those side by side count once."""
        return self._total + (time.monotonic() - self._since if self.waiting else 0.0)

    def begins(self, who: object, error: BaseException) -> None:
        """Note that a call failed and will be repeated."""
        now = time.monotonic()
        if who not in self.waiting:
            if not self.waiting:
                self._since = now
            self.waiting[who] = now
        elif self._told.acquire(blocking=False):
            log.warning("waiting for the store: %s", format_store_error(error))

    def ends(self, who: object, *, reached: bool = True) -> None:
        """It is not repeated any more; ``reached`` unless it gave up."""
        if self.waiting.pop(who, None) is None or self.waiting:
            return
        now = time.monotonic()
        took, self._since = now - self._since, now
        self._total += took
        with contextlib.suppress(RuntimeError):  # nothing was told; or another thread, that ended with this one, tells
            self._told.release()
            if reached:
                log.warning("the store is back after %.1f s", took)


outage = Outage()
os.register_at_fork(after_in_child=lambda: outage.__init__())  # type: ignore[misc]  # as new


def retry_while_unavailable(
    call: Callable[[], T],
    *,
    after: Exception | None = None,
    limit: float | None = None,
    first: float = 0.02,
    most: float = 1.0,
    refused: Callable[[NotNow], object] | None = None,
    passing: tuple[type[Exception], ...] = TRANSIENT_ERRORS,
) -> T:
    """Repeat ``call`` while the store is away or refuses for now, for ``limit`` seconds (``None``: for ever).

    Pauses are those of a `Backoff` from ``first`` to ``most`` seconds. ``refused`` gets each refusal. ``passing``
    are the errors after which it is repeated. ``after``: what it has raised already, when it was first called.
    With a ``limit`` a `forbidden` one is raised at once.
    """
    end = None if limit is None else time.monotonic() + limit
    mended: float | None = None  # until when what it refuses because of an overwritten key is asked again
    backoff: Backoff | None = None
    who: object = None
    reached = False
    try:
        while True:
            try:
                if after is not None:
                    failed, after = after, None
                    raise failed
                answer = noticing(call)
                reached = True
                return answer
            except passing as error:
                backoff = backoff or Backoff(first, most)
                pause = backoff.pause()
                again = time.monotonic() + pause
                if not (isinstance(error, NotNow) and error.overwritten):
                    mended = None
                elif mended is None or error.mended:
                    mended = again + MENDED
                if (end and forbidden(error)) or again > min(end or math.inf, mended or math.inf):
                    raise
                who = who or object()
                outage.begins(who, error)
                if refused is not None and isinstance(error, NotNow):
                    refused(error)
            except ResponseError:
                reached = True
                raise
            waiting.sleep(pause)
    finally:
        if who is not None:
            outage.ends(who, reached=reached)


class DelayedCalls:
    """Calls functions later, in one thread, which sleeps while there is nothing to call."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all: a forked process has no thread of its parent's."""
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers, self._changed = itertools.count(), threading.Condition()
        self._is_started = False

    def __call__(self, do: Callable[[], object], seconds: float) -> bool:
        """Call ``do`` in so many seconds. Returns False if it will not be called: no thread can be started."""
        with self._changed:
            heapq.heappush(self._waiting, (time.monotonic() + seconds, next(self._numbers), do))
            if not self._is_started:
                try:
                    threading.Thread(target=self._run, name="runner-delayed-calls", daemon=True).start()
                except RuntimeError:  # no more threads, or the interpreter ends
                    self._waiting.clear()
                    return False
                self._is_started = True
            self._changed.notify()
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                if (left := self._waiting[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left)
                    continue
                _, _, do = heapq.heappop(self._waiting)
            with contextlib.suppress(Exception, Stop):  # a task meets it with its next write
                do()
            del do


class IdleTimer:
    """Calls a function at intervals until it returns true.

    It serves one function at a time: that of the task which last wrote to the store.

    Attributes:
        look: the function.
        awake: whether it will be called.
    """

    def __init__(self, delayed: Callable[[Callable[[], object], float], bool]) -> None:
        self._delayed = delayed
        self.reset()

    def reset(self) -> None:
        """Forget all: a forked process has no thread of its parent's."""
        self.awake = False
        self.look: Callable[[], bool] = bool
        self._every = 0.0

    def __call__(self, look: Callable[[], bool], every: float) -> None:
        """Call ``look`` every so many seconds until it returns true, in place of the function of before."""
        self.look, self._every = look, every
        if not self.awake:  # which costs less to ask
            self.awake = self._delayed(self._look, min(every, 60.0))

    def _look(self) -> None:
        self.awake = False
        if not self.look():
            self(self.look, self._every)


call_later = DelayedCalls()
idle_timer = IdleTimer(call_later)
os.register_at_fork(after_in_child=call_later.reset)
os.register_at_fork(after_in_child=idle_timer.reset)
