"""A crew that is killed again and again while it runs, for test_kills.py: it forks its lives from one parent."""

import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from runner import CheckpointConfig, Crew, Task
from runner.providers import detect_provider

PLACE, LOG = sys.argv[1], Path(sys.argv[2])
SIDE, LIVES, STEPS = 6, *map(int, sys.argv[3:])


def work(ctx: Any) -> str:
    for i in range(STEPS if ctx.task.name.startswith("side") else 2):
        ctx.step("pay", pay, ctx.task.name, i)
    return f"{ctx.task.name} of {len(ctx.context)}"


def pay(task: str, i: int) -> int:
    fd = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{task} {i}\n".encode())
    os.close(fd)
    return i


def crew() -> Crew:
    side = [Task(name=f"side{i}", run=work, async_execution=True) for i in range(SIDE)]
    return Crew(tasks=[Task(name="first", run=work), *side, Task(name="last", run=work)])


def live(report: int) -> None:
    """One life: begin, or go on from the newest checkpoint; tell of each one written."""
    events: Any = ["task_started", "task_completed", "tool_usage_finished", "crew_kickoff_completed"]
    provider = detect_provider(PLACE)

    class Telling(type(provider)):
        def checkpoint(self, *args: Any, **kwargs: Any) -> str:
            where: str = super().checkpoint(*args, **kwargs)
            os.write(report, b".")
            return where

    config = CheckpointConfig(
        location=PLACE, on_events=events, provider=Telling(), max_checkpoints=3, restore_from=PLACE
    )
    result = crew().kickoff(from_checkpoint=config)
    os.write(report, b"!" + result.raw.encode())


def one_life(kill_after: int | None) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            live(writing)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    told = b""
    while piece := os.read(reading, 1):
        told += piece
        if kill_after is not None and told.count(b".") >= kill_after:
            os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return told.rpartition(b"!")[2].decode() if status == 0 else ""


random.seed(7)
for _ in range(LIVES):
    assert one_life(random.randint(1, 4)) == "", "it was to be killed, and ended first: give it more steps"
print(json.dumps(one_life(None)))
