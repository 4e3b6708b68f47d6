"""Named points between two writes, at which tests kill the process.

``RUNNER_CRASH_AT=NAME:FLAG`` kills the first process that reaches NAME, and leaves the file FLAG. Without it, passing a
point calls a builtin. Call it as ``fault_points.reached``: what that is changes when a point is armed.
"""

import os
import signal
from collections.abc import Callable
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
    "model answer sent to the store, not acknowledged",
    "steps gathered, not written",
    "steps sent to the store, not acknowledged",
    "steps written, not told",
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
_nothing: Callable[[CrashPoint], object] = bool
reached = _nothing
"""Die here by SIGKILL, if a test asked for it and no process has died here yet."""


def arm(setting: str) -> None:
    """From now on, kill the process at ``NAME:FLAG``; "" for nowhere."""
    global _NAME, _FLAG, reached
    _NAME, _, _FLAG = setting.partition(":")
    reached = _die if setting else _nothing


def _die(point: CrashPoint) -> None:
    if point != _NAME:
        return
    try:
        Path(_FLAG).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("RUNNER_CRASH_AT", ""))
