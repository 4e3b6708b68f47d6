"""What was really done, counted apart from the store; and the store as one worker sees it, which is counted."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from actors import Actor

from runner.core.errors import ClaimLost
from runner.providers.memory import MemoryStore
from runner.providers.records import DeferredEvent


class Account:
    """What steps and commits came to. Whatever breaks a law is in ``wrong``."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()  #: how often each step was really done
        self.recorded: set[str] = set()
        self.commits: Counter[str] = Counter()
        self.interrupted = 0  #: attempts that were taken back: each leaves in doubt what it had under way at most
        self.wrong: list[str] = []

    def pay(self, step: str) -> None:
        """A step is really done."""
        self.paid[step] += 1

    def record(self, value: str) -> None:
        """The store took its record: from who holds the task, and so was given all that is recorded."""
        step = json.loads(value)
        if step in self.recorded:
            self.wrong.append(f"step {step} was recorded, and is done again")
        self.recorded.add(step)

    def commit(self, task: str) -> None:
        """The store took a commit."""
        self.commits[task] += 1
        if self.commits[task] > 1:
            self.wrong.append(f"task {task} was committed {self.commits[task]} times")


class SeenStore:
    """The store as one process sees it: between any two moments of a call somebody else may come, or it may die."""

    def __init__(self, actor: Actor, store: MemoryStore, account: Account, random: Random) -> None:
        self.id = store.id
        self._random = random
        self.bundle = store.bundle  # whether it is asked for depends on what this machine has unpacked before
        self._actor, self._store, self._account = actor, store, account

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._actor.point()
            found = method(*args, **kwargs)
            self._actor.point()
            return found

        return call

    def task(self, claim: Any, sent: Any, log: Any) -> Any:
        """Its writes are seen likewise."""
        return SeenTask(self._actor, self._store.task(claim, sent, log), self._account, claim, self._random)


class Posted:
    """A record that is on its way: the store takes it at once, or only when somebody waits for it."""

    def __init__(self, write: Callable[[], object]) -> None:
        self._write, self._is_done = write, False
        self._error: Exception | None = None

    def arrive(self) -> None:
        """The store takes it, or refuses it."""
        if not self._is_done:
            self._is_done = True
            try:
                self._write()
            except Exception as error:
                self._error = error

    def settle(self) -> None:
        """What came of it, however often it is asked."""
        self.arrive()
        if self._error is not None:
            raise self._error


class SeenTask:
    """The writes of a claim, and what of them the store took.

    As of a store behind a connection, events go with what is written next, and a record may be under way.
    """

    can_wait = True

    def __init__(self, actor: Actor, task: Any, account: Account, claim: Any, random: Random) -> None:
        self._actor, self._task, self._account, self._claim = actor, task, account, claim
        self._random = random
        self._deferred: list[tuple[DeferredEvent, Any, Any]] = []
        self._posted: Posted | None = None

    @property
    def end_events(self) -> Any:
        return self._task.end_events

    @property
    def next(self) -> Any:
        return self._task.next

    def place(self, step: str) -> str:
        return self._task.place(step)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._task, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._actor.point()
            self._make_way()
            found = method(*args, **kwargs)
            if name == "record_step":
                self._account.record(args[1])
            elif name == "record_steps":
                self._record_all(args[0])
            elif name == "commit" or (name == "expand" and found):
                self._account.commit(self._claim.job.task)
            self._actor.point()
            return found

        return call

    def mark_sent(self, entry: Any) -> None:
        """It tells nobody but who looks after the process."""
        self._task.mark_sent(entry)

    def defer_event(self, *args: Any, **kwargs: Any) -> DeferredEvent:
        """It goes with what is written next, and with its process if there is nothing."""
        self._actor.point()
        event = DeferredEvent()
        self._deferred.append((event, args, kwargs))
        return event

    def post_steps(self, done: Any, **kwargs: Any) -> Callable[[], None]:
        """The steps are on their way when this returns."""
        self._actor.point()
        self._make_way()

        def write() -> None:
            self._task.record_steps(done, **kwargs)
            self._record_all(done)

        self._posted = posted = Posted(write)
        if self._random.random() < 0.5:
            posted.arrive()
        self._actor.point()
        return lambda: self._settle(posted)

    def _settle(self, posted: Posted) -> None:
        self._actor.point()
        posted.settle()
        self._actor.point()

    def _make_way(self) -> None:
        posted, self._posted = self._posted, None
        if posted is not None:
            posted.settle()
        for event, args, kwargs in self._deferred:
            event.sequence = 0
            with contextlib.suppress(ClaimLost):
                event.sequence = self._task.append_event(*args, **kwargs)
        self._deferred = []

    def _record_all(self, done: Any) -> None:
        for one in done:
            self._account.record(one.value)
