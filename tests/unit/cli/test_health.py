"""What ``runner doctor --worker`` says of what workers registered."""

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner.cli import health
from runner.providers.redis.workers import WorkerInfo


def test_a_worker_that_says_no_pid_is_none_to_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = WorkerInfo("w0", 1000, json.dumps({"host": socket.gethostname()}))
    monkeypatch.setattr(health, "_workers", lambda _: SimpleNamespace(now=lambda: 500, registered=lambda: [worker]))
    monkeypatch.setattr(Path, "exists", lambda _: False)  # no /proc, by which it would be passed over
    found = health.worker_health("self")
    assert (found.ok, found.found) == (
        False,
        f"self: no worker on {socket.gethostname()} whose processes are visible here is registered: "
        "`runner doctor` lists the workers that are",
    )
