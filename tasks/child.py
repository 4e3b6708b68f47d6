"""Ties a worker, or a child of its pool, to its parent process: it ends when the parent dies."""

import ctypes
import signal
import sys

REQUESTS = "RUNNER_ENVIRONMENTS_FD"  #: where a worker reads which descriptor takes its requests
_PR_SET_PDEATHSIG = 1


def end_with_parent(signum: int = signal.SIGTERM) -> None:
    """Linux: a parent that is killed takes this process along; a worker that is asked to end hands its tasks back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum)
