"""A worker that is started by whoever submits or forks: nobody waits until it stands, and no second one is started."""

import os
import sys
from pathlib import Path

import pytest

from runner.client import local_worker


def test_it_counts_from_the_moment_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a worker that is slow to start: it has not run a line yet
    held = tmp_path / "held"
    os.mkfifo(held)
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nexec cat {held}\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    # When one is asked for, and asked for again
    first = local_worker.ensure(tmp_path, "queue")
    # Then there is one
    assert first is not None
    assert local_worker.ensure(tmp_path, "queue") is None
    with local_worker.counted(tmp_path, "queue"):
        assert local_worker.ensure(tmp_path, "queue") is None
    # And when it ended there is none any more
    held.open("w").close()
    assert first.wait(10) == 0
    second = local_worker.ensure(tmp_path, "queue")
    assert second is not None
    held.open("w").close()
    assert second.wait(10) == 0
