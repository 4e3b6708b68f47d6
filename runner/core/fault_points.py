"""Named points between two writes, at which tests kill the process.

``RUNNER_CRASH_AT=NAME:FLAG`` kills the first process that reaches NAME, and leaves the file FLAG. Without it, passing a
point costs one comparison.
"""

import os
import signal
from pathlib import Path
from typing import Literal

CrashPoint = Literal[
    "run created, nothing waited for",
    "forked, nothing waited for",
    "job received, not claimed",
    "claimed, not begun",
    "step begun, not done",
    "step done, not recorded",
    "model call noted, not sent",
    "model call sent, not answered",
    "model answered, not recorded",
    "step recorded, task not ended",
    "task done, not committed",
    "growth decided, not committed",
    "question put, not asked",
    "task committed, job not ended",
    "next task claimed, not begun",
    "attempt failed, not recorded",
    "asked to stop, not handed back",
    "checkpoint begun, not whole",
    "checkpoint whole, not synced",
    "checkpoint synced, not named",
    "checkpoint named, not told",
    "checkpoints pruned in part",
]

_NAME = _FLAG = ""


def arm(setting: str) -> None:
    """From now on die at ``NAME:FLAG``; "" for nowhere."""
    global _NAME, _FLAG
    _NAME, _, _FLAG = setting.partition(":")


arm(os.environ.get("RUNNER_CRASH_AT", ""))


def reached(point: CrashPoint) -> None:
    """Die here by SIGKILL, if a test asked for it and no process has died here yet."""
    if point != _NAME:
        return
    try:
        Path(_FLAG).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
