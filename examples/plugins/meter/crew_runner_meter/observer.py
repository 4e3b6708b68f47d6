"""Writes what a task took and what its calls cost: ids and figures, no payload."""

import json
import os
from typing import Any

from runner.core.jobs import Claim
from runner.core.ledger import AccountKey, Usage
from runner.engine.decisions import Decision
from runner.engine.observers import Observer


class Meter(Observer):
    """One line for each step and each attempt. Lines of several processes do not mix: each is one write."""

    def step_recorded(self, claim: Claim, step: str, entry: AccountKey, usage: Usage) -> None:
        """What a call took."""
        tokens = usage.prompt_tokens + usage.completion_tokens
        _write(claim, {"step": step, "kind": entry.kind, "model": entry.model, "tokens": tokens})

    def task_ended(self, claim: Claim, decision: Decision, seconds: float) -> None:
        """How long the attempt was, and what came of it."""
        _write(claim, {"ended": type(decision).__name__.lower(), "seconds": round(seconds, 3)})


def _write(claim: Claim, about: dict[str, Any]) -> None:
    job = claim.job
    ids = {"run": job.run_id, "branch": job.branch, "task": job.task, "attempt": job.attempt}
    if file := os.environ.get("METER_FILE"):
        with open(file, "a", encoding="utf-8") as out:  # noqa: PTH123 - appended in one write
            out.write(json.dumps(ids | about) + "\n")


METER = Meter()
