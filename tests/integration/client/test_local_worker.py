"""A worker that is started by whoever submits or forks: nobody waits until it stands, and no second one is started."""

import os
import sys
from pathlib import Path

import pytest

from runner.client import local_worker
from runner.core.settings import embedded_queue


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


def test_it_is_of_the_environment_whose_queue_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another environment's client may be the one that waits for the run."""
    this, other = (tmp_path / name for name in ("this", "other"))
    for one in (this, other):
        one.write_text('#!/bin/sh\necho "$0" "$@" > "$RUNNER_STATE_DIR/started"\n')
        one.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(other))
    started(tmp_path, queue := embedded_queue())
    # Given the queue of an environment, and a client of another one
    monkeypatch.setattr(sys, "executable", str(this))
    monkeypatch.setattr(local_worker, "embedded_queue", lambda: "this-one's")
    # Then it is a worker of the first that is started; of this one, where there is none any more, or for its own queue
    assert started(tmp_path, queue).startswith(f"{other} ")
    assert started(tmp_path, "this-one's").startswith(f"{this} ")
    other.unlink()
    assert started(tmp_path, queue).startswith(f"{this} ")


def started(folder: Path, queue: str) -> str:
    """The command of the worker that is started."""
    worker = local_worker.ensure(folder, queue)
    assert worker is not None
    assert worker.wait(10) == 0
    return (folder / "started").read_text()
