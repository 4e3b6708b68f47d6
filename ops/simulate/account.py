"""What was really done, counted apart from the store; and the store as one worker sees it, which is counted."""

import json
from collections import Counter
from typing import Any

from actors import Actor

from runner.providers.memory import MemoryStore


class Account:
    """What steps and commits came to. Whatever breaks a law is in ``wrong``."""

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()  #: how often each step was really done
        self.recorded: set[str] = set()
        self.commits: Counter[str] = Counter()
        self.interrupted = 0  #: attempts that were taken back: each leaves one step in doubt at most
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

    def __init__(self, actor: Actor, store: MemoryStore, account: Account) -> None:
        self.id = store.id
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
        return SeenTask(self._actor, self._store.task(claim, sent, log), self._account, claim)


class SeenTask:
    """The writes of a claim, and what of them the store took."""

    can_wait = True

    def __init__(self, actor: Actor, task: Any, account: Account, claim: Any) -> None:
        self._actor, self._task, self._account, self._claim = actor, task, account, claim

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
            found = method(*args, **kwargs)
            if name == "record_step":
                self._account.record(args[1])
            elif name == "commit" or (name == "expand" and found):
                self._account.commit(self._claim.job.task)
            self._actor.point()
            return found

        return call
