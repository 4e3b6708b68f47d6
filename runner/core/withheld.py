"""Settings of a worker that what its tasks start does not inherit: passwords, and what means something to it alone.

A task's code may start anything, such as a shell tool's ``env``, whose output a model then reads.
"""

import os
from typing import overload

NAMES = (
    "RUNNER_REDIS_URL", "RUNNER_BROKER_URL", "RUNNER_BUNDLE_KEY", "RUNNER_FLOWER_AUTH",
    "RUNNER_WORKER_ID", "RUNNER_ASKED_FD", "RUNNER_ENVIRONMENTS_FD", "RUNNER_PART",
)  # fmt: skip

_withheld: dict[str, str] = {}


def withhold() -> None:
    """Take them out of the environment of this process and its forks: in a worker, before it does a task."""
    for name in NAMES:
        if name in os.environ:
            _withheld[name] = os.environ.pop(name)


@overload
def setting(name: str) -> str | None: ...
@overload
def setting(name: str, default: str) -> str: ...
def setting(name: str, default: str | None = None) -> str | None:
    """What the environment says, or said before it was withheld."""
    return os.environ.get(name, _withheld.get(name, default))


def values() -> dict[str, str]:
    """What was withheld."""
    return dict(_withheld)
