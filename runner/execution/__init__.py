"""One job, done: claimed, its crew's code fetched, its task performed, and what came of it stored."""

from runner.execution.execution import Decision, Executor, Fail, Release, Retry

__all__ = ["Decision", "Executor", "Fail", "Release", "Retry"]
