"""What a worker's log has of each task: that it starts, how it ends. Names and ids, and why it failed: no payload."""

import logging

from runner.core.jobs import Claim
from runner.core.redaction import CLEAN, redact
from runner.engine.decisions import Ask, Commit, Decision, Fail, Grown, Lost, Release, Retry
from runner.engine.observers import Observer

log = logging.getLogger("runner.tasks")


class LogObserver(Observer):
    """Writes a line for each."""

    def task_started(self, claim: Claim) -> None:
        """That it starts."""
        _say(logging.INFO, claim, "started")

    def task_ended(self, claim: Claim, decision: Decision, seconds: float) -> None:
        """How it ended."""
        failed = f"failed after {seconds:.3f} s"
        match decision:
            case Commit() | Grown():
                _say(logging.INFO, claim, f"completed in {seconds:.3f} s")
            case Ask():
                _say(logging.INFO, claim, "waits for a person")
            case Retry(delay, reason, trace):
                _say(logging.WARNING, claim, f"{failed}, is tried again in {delay:.1f} s", reason, trace)
            case Fail(reason, trace):
                _say(logging.ERROR, claim, failed, reason, trace)
            case Release():
                _say(logging.INFO, claim, "handed back")
            case Lost():
                _say(logging.WARNING, claim, "is another worker's by now: nothing of it was stored")


def _say(level: int, claim: Claim, what: str, reason: str = "", trace: str = "") -> None:
    job = claim.job
    ids = {"run": job.run_id, "branch": job.branch, "task": job.task, "attempt": job.attempt}
    text = f"task {job.task} {what} (run {job.run_id}, branch {job.branch}, attempt {job.attempt})"
    text += f": {redact(reason)}" if reason else ""
    # The trace is masked already; and to mask what is but ids costs as much as doing a small task.
    log.log(level, "%s", f"{text}\n{trace}" if trace else text, extra={**ids, CLEAN: True})
