"""One job, done: claimed, its crew's code fetched, its task performed, and what came of it stored."""

from runner.engine.decisions import Decision, Fail, Release, Retry
from runner.engine.executor import Executor
from runner.engine.failures import places

__all__ = ["Decision", "Executor", "Fail", "Release", "Retry", "places"]
