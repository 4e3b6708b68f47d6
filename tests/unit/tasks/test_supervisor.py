"""What a supervisor makes of what workers registered."""

import json
from types import SimpleNamespace
from typing import Any

from runner.core.settings import WorkerSettings
from runner.providers.redis.workers import WorkerInfo
from runner.tasks.supervisor import Supervisor


def test_a_worker_that_does_not_say_which_connection_is_its_own_is_not_judged_by_that() -> None:
    asked: list[Any] = []

    def connected(clients: Any) -> set[int]:
        asked.append(list(clients))
        return {7}

    one = Supervisor(lambda: None, "s", WorkerSettings())
    one._server = "here"
    one._workers = SimpleNamespace(connected=connected)
    one._known = [
        WorkerInfo("w0", 1000, json.dumps({"server": "here"})),
        WorkerInfo("w1", 1000, json.dumps({"server": "here", "client_id": 7})),
    ]
    one._reap_disconnected()
    assert asked == [[7]]
    assert one._missing == set()
