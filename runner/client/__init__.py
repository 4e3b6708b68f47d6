"""The verbs: submit a crew, inspect runs, resume one, fork one, compare branches."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.client.client import Client
    from runner.client.handle import RunHandle, RunResult
    from runner.client.submission import Prepared, prepare

_HOMES = {
    "Client": "partitions",  # with which it may be one of several stores
    "Prepared": "submission",
    "RunHandle": "handle",
    "RunResult": "handle",
    "prepare": "submission",
}

__all__ = ["Client", "Prepared", "RunHandle", "RunResult", "prepare"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'runner.client' has no attribute {name!r}")
    # The embedded server and the store are below this package, too, and are wanted without the rest.
    return getattr(import_module(f"runner.client.{_HOMES[name]}"), name)
