"""One job, done: claimed, its crew's code fetched, its task performed, and what came of it stored."""

from runner.execution.decisions import Decision, Fail, Release, Retry
from runner.execution.execution import Executor
from runner.execution.failures import places

__all__ = ["Decision", "Executor", "Fail", "Release", "Retry", "places"]
