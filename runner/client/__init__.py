"""The verbs: submit a crew, inspect runs, resume one, fork one, compare branches."""

from typing import TYPE_CHECKING

from runner.core.runtime import names_from

if TYPE_CHECKING:
    from runner.client.batch import Batch
    from runner.client.batch_state import BatchState
    from runner.client.client import Client
    from runner.client.handle import RunHandle, RunResult
    from runner.client.submission import Prepared, prepare

__all__ = ["Batch", "BatchState", "Client", "Prepared", "RunHandle", "RunResult", "prepare"]

# The embedded server and the store are below this package, too, and are wanted without the rest.
__getattr__ = names_from(
    __name__,
    {
        "runner.client.partitions": "Client",  # with which it may be one of several stores
        "runner.client.batch": "Batch",
        "runner.client.batch_state": "BatchState",
        "runner.client.submission": "Prepared prepare",
        "runner.client.handle": "RunHandle RunResult",
    },
)
