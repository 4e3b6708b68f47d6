"""What each task in flight has of its own takes little room: thousands of them wait at a time."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from greenlet import getcurrent
from kombu.message import Message

from runner.bundles.task_files import Workdir
from runner.core import waiting
from runner.core.ledger import Counters
from runner.core.plan.dependencies import InputsInUse, ReadTracker
from runner.engine import observers
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import inside_of
from runner.journal.steps import JournalProgress
from runner.providers.redis import scripts
from runner.providers.redis.scripts import PackedScript
from runner.tasks import jobs, request
from runner.tasks.app import app
from runner.tasks.greenlets import SwitchingAlarm, SwitchingTask

_LOOP: Any = SimpleNamespace(hub=getcurrent())
_READS = ReadTracker()
_APPEND = scripts.load("append_event")
_MARGIN = 1.1 if sys.version_info >= (3, 14) else 1.0  #: an object with a lock, or with dicts, takes more there


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (Counters, 200),
        (lambda: InputsInUse({}, _READS), 90),
        (lambda: inside_of(None), 150),
        (ReadTracker, 270),
        (CancelScope, 540),
        (waiting.TaskLock, 180),
        (lambda: PackedScript(_APPEND, "run", "branch", "task"), 280),
        (lambda: JournalProgress({}), 570),
        (lambda: Workdir(bool, bool, bool), 400),
        (lambda: SwitchingAlarm(None, _LOOP), 80),
        (lambda: SwitchingTask(_LOOP, bool, None), 650),
    ],
)
def test_one_takes_so_many_bytes_at_most(make: Callable[[], object], most: int) -> None:
    emptied = [make() for _ in range(1_000)]  # the interpreter gives objects that were let go first
    tracemalloc.start()
    try:
        made = [make() for _ in range(1_000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(emptied) == len(made) == 1_000
    assert taken // 1_000 <= most * _MARGIN  # what is less than a byte of each is none of theirs


def test_all_executors_of_a_process_have_the_same_observers() -> None:
    assert observers.of_jobs() is observers.of_jobs()


def test_a_request_keeps_no_message_that_nobody_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(jobs.job), "has_own_broker", True)
    body = json.dumps([[], {"run": "r", "branch": "main", "task": "t", "attempt": 1}, {}])
    message = Message(
        body, content_type="application/json", content_encoding="utf-8", accept=["application/json"],
        headers={"task": "runner.job", "id": "1", "shadow": "crew.t"}, properties={}, delivery_info={},
    )  # fmt: skip
    told: list[object] = []
    kept = request.JobRequest(message, on_ack=told.append, on_reject=told.append, app=app, task=jobs.job, hostname="h")
    kept.acknowledge()
    kept.reject()
    assert (kept.message, kept.on_ack, kept.on_reject, told) == (None, None, None, [])
    assert kept.info()["kwargs"] == {"run": "r", "branch": "main", "task": "t", "attempt": 1}
