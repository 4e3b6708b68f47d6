"""Tasks that share a thread, and write on one connection: who waits for the store stops nobody else, and none mixes
up what it says with another."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from runner.core import waiting
from runner.core.ledger import AccountKey
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.steps import Frame, current_step
from runner.providers.redis.pipelined import Replicas
from runner.providers.redis.shared_connection import SharedConnection
from runner.providers.redis.store import ClaimedTask
from runner.testing import eventually

from .driver import Driver, plan_of

task_loop = pytest.importorskip("runner.tasks.task_loop")

GPT = AccountKey("model", "A", "gpt")


class Line(SharedConnection):
    """A connection whose server may be away. ``asked`` are the tasks and threads that asked it meanwhile."""

    is_away = False

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, Replicas())
        self.asked = list[object]()

    def ask(self, *command: Any) -> Any:
        if self.is_away:
            self.asked.append(waiting.here() or threading.get_ident())
            raise ConnectionError("it is away")
        return super().ask(*command)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in (("_find", None), ("_loop", None), ("shared", False)):
        monkeypatch.setattr(waiting, name, value)
    loop = task_loop.TaskLoop(8, 2, 2)
    loop.start()
    yield loop
    loop.restarts = False
    loop.call(loop.loop.stop)
    loop._thread.join(10)
    loop.loop.close()


def turned(loop: Any) -> bool:
    """Whether the thread still does what comes."""
    looked = threading.Event()
    loop.call(looked.set)
    return looked.wait(10)


def test_the_store_is_away_and_tasks_of_one_thread_record_steps(driver: Driver, redis: Redis, loop: Any) -> None:
    # Given two tasks that share a thread, of which one has a step in which it asks a model
    driver.submit(plan_of("a", "b"))
    line = Line(redis)
    claims = driver.take("a", "b")
    a, b = (Journal({}, ClaimedTask(line.side(), claims[name]), CancelScope()) for name in "ab")
    step, other = (Frame(journal, "s#1", AccountKey("step"), None) for journal in (a, b))
    a.enter(step)
    b.enter(other)
    failed = list[BaseException]()

    def do(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    def replays() -> None:
        current_step.set(step)
        a._supersede_enclosing(step)

    # When the store is away, and both record, and the first does so in two coroutines and a thread
    line.is_away = True
    loop.begin(lambda: do(lambda: a.enter(Frame(a, "c#1", GPT, None))))
    eventually(lambda: line.asked, why="one waits for the store")
    loop.begin(lambda: do(lambda: a.record_as("t#1", "1", entry=None)))
    thread = threading.Thread(target=do, args=(replays,))
    thread.start()
    thread.join(0.05)  # it waits for its turn
    loop.begin(lambda: do(lambda: b.enter(Frame(b, "c#1", GPT, other))))
    assert turned(loop)
    eventually(lambda: len(set(line.asked)) > 1, why="the other task asks, too")
    # Then the thread serves others, and of the first task only one asks
    assert turned(loop)
    assert len(set(line.asked)) == 2
    # And all is stored when the store is back
    line.is_away = False
    assert loop._idle.wait(30)
    thread.join(10)
    assert not failed
    line.settle()
    begun = {key[-1]: redis.hget(key, "begun") for key in redis.scan_iter("*:task:?")}
    assert begun == dict.fromkeys("ab", '[["model", "A", "gpt", 1, 0]]')
