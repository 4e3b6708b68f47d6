"""Crews and places that do what nobody should: the run ends in words, and the worker goes on."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from runner.client import Client
from runner.providers.redis import keys

from ...support.soak import in_soak

pytestmark = pytest.mark.timeout(120)

EXITS = """
    import sys
    from runner import Crew, Task
    def leave(ctx):
        sys.exit("usage: bad flag")
    def interrupt(ctx):
        raise KeyboardInterrupt
    def leave_in_a_step(ctx):
        return ctx.step("paid", sys.exit, 3)
    leaves = Crew(tasks=[Task(name="t", run=leave)])
    interrupts = Crew(tasks=[Task(name="t", run=interrupt)])
    steps = Crew(tasks=[Task(name="t", run=leave_in_a_step)])
    good = Crew(tasks=[Task(name="t", run=lambda ctx: "fine")])
"""


@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_code_that_ends_the_process_fails_its_task(pool: str, fleet: Any, client: Client, write_crew: Any) -> None:
    fleet.start("--concurrency", "1", "--pool", pool)
    crew = write_crew(EXITS)
    said = {name: client.submit(f"{crew}:{name}").wait(30) for name in ("leaves", "interrupts", "steps", "good")}
    assert said["leaves"].error is not None
    assert "SystemExit: usage: bad flag (crew.py:" in said["leaves"].error
    assert "KeyboardInterrupt (crew.py:" in str(said["interrupts"].error)
    assert "SystemExit: 3" in str(said["steps"].error)
    assert said["steps"].ledger["in_doubt"] == 0, "it raised: nothing was paid for"
    assert [said[name].recoveries for name in said] == [0, 0, 0, 0]
    assert said["good"].result == "fine"


@pytest.mark.parametrize("module", [*in_soak("redis", "celery", "json"), "runner"])
def test_what_lies_in_the_working_directory_is_not_imported(module: str, tmp_path: Path, write_crew: Any) -> None:
    """By the worker that a submission starts: it is not the crew's folder that it was started in."""
    (tmp_path / f"{module}.py").write_text("raise RuntimeError('imported from the working directory')\n")
    crew = write_crew(EXITS)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runner", "submit", f"{crew}:good"],
        cwd=tmp_path, env={**kept, "RUNNER_STATE_DIR": str(tmp_path / "s")}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "fine\n"


def test_a_run_for_another_broker_is_done_by_workers_of_this_one(
    fleet: Any, client: Client, write_crew: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """It was accepted, so it ends: whoever empties the outbox sends to the broker that it has."""
    monkeypatch.setenv("RUNNER_BROKER_URL", "redis://127.0.0.1:1/1")
    handle = client.submit(f"{write_crew(EXITS)}:good")
    monkeypatch.delenv("RUNNER_BROKER_URL")
    fleet.start("--concurrency", "1")
    assert handle.wait(30).result == "fine"
    outbox = keys.key("outbox_key", home=keys.home())
    eventually(lambda: redis.zcard(outbox) == 0, why="what was sent leaves the outbox")
