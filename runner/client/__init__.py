"""The verbs: submit a crew, look at runs, let one go on, fork one, compare branches."""

from runner.client.client import Client
from runner.client.handle import RunHandle, RunResult
from runner.client.submission import Prepared, prepare

__all__ = ["Client", "Prepared", "RunHandle", "RunResult", "prepare"]
