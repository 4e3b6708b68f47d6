"""No lock is held while the store is waited for: who wants it may share the thread, which would wait for itself."""

from types import SimpleNamespace
from typing import Any

from runner.core import waiting
from runner.core.jobs import Job
from runner.core.ledger import AccountKey
from runner.engine.event_relay import TaskEvents
from runner.events.base import BaseEvent
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.steps import Frame


class Away:
    """A store that is away until as many wait for it as are to."""

    def __init__(self, tasks: Any, many: int) -> None:
        self.tasks, self.many = tasks, many
        self.alarms: list[Any] = []

    def answer(self) -> int:
        waiter = waiting.here()
        assert waiter is not None
        self.alarms.append(waiter.alarm())
        number = len(self.alarms)
        if number == self.many:
            for one in self.alarms:
                one.set()
        self.alarms[number - 1].wait(10)
        return number

    def drop_step(self, *_: Any, **__: Any) -> None:
        self.answer()

    def append_event(self, *_: Any, **__: Any) -> int:
        return self.answer()


def test_calls_of_two_tasks_are_replayed_while_the_store_is_away(tasks: Any) -> None:
    store: Any = Away(tasks, 2)

    def replay() -> str:
        journal = Journal({}, store, CancelScope())
        journal._supersede_enclosing(Frame(journal, "step#1", AccountKey("step"), None))
        return "replayed"

    tasks.begin(replay)
    tasks.begin(replay)
    assert tasks.results() == ["replayed", "replayed"]


def test_events_of_one_task_come_while_the_store_is_away(tasks: Any) -> None:
    store: Any = Away(tasks, 2)
    scope = SimpleNamespace(claim=0, branch=0, task=0, agent=0, triggers=frozenset())
    claim: Any = SimpleNamespace(job=Job("r", "main", "t", 1), scope=scope)
    events = TaskEvents(claim, store, CancelScope())

    def emit() -> tuple[int, str | None]:
        event = BaseEvent(type="own")
        return events._number(event), event.event_id

    tasks.begin(emit)
    tasks.begin(emit)
    results = tasks.results()
    assert sorted(number for number, _ in results) == [1, 2]
    assert len({event for _, event in results}) == 2
    events.close()
    tasks.begin(emit)
    assert tasks.results()[-1][0] == 2, "nothing is written any more"
