"""What a supervisor makes of what workers registered."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.core.settings import WorkerSettings
from runner.journal import task_marks
from runner.providers.redis.workers import WorkerInfo
from runner.tasks.supervisor import Supervisor, _is_seen


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


@pytest.mark.slow
def test_a_worker_of_this_machine_is_seen_to_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def worker(pid: int, out: str, host: str = socket.gethostname()) -> WorkerInfo:
        return WorkerInfo("w", 1000, json.dumps({"pid": pid, "out": out, "host": host}))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(task_marks, "_sent", None)
    ours = task_marks.share_sent("host-1-abcdef", "s")
    assert _is_seen(worker(os.getpid(), ours))
    assert not _is_seen(worker(os.getpid(), ours, "elsewhere"))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not _is_seen(worker(ended.pid, ours)), "it is a zombie; its children still have the file"
    assert not _is_seen(worker(ended.pid, ours))
    (again := tmp_path / "again").touch()
    assert not _is_seen(worker(os.getpid(), str(again))), "another has its number, as where a container starts again"
    assert not _is_seen(worker(os.getpid(), ""))
    assert not _is_seen(WorkerInfo("w", 1000, "{}"))
