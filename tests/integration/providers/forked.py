"""Runs to fork, and what to look at in their branches."""

import json
from typing import Any

from runner.core.plan import Plan

from .calls import contents
from .driver import Driver, plan_of

HOME = "runner:{p0}"
DIAMOND = plan_of("a", "b: a", "c: a", "d: b c", "e: d")


def own(driver: Driver, run: str, branch: str) -> list[str]:
    """What was edited on a branch, and what it did itself, in its order."""
    key = f"{HOME}:run:{run}:branch:{branch}"
    commits = [json.loads(entry)[1] for entry in driver.redis.lrange(f"{key}:order", 0, -1)]
    return json.loads(driver.redis.hget(key, "edits") or "[]") + commits


def whole(driver: Driver, plan: Plan = DIAMOND, **options: str) -> str:
    """A run that went through."""
    run = driver.submit(plan, **options)
    driver.work()
    return run


def checkpoint_at(driver: Driver, run: str, task: str, branch: str = "main") -> str:
    return next(c.id for c in driver.runs.checkpoints(run, branch) if c.task == task)


def everything(driver: Driver, of: str) -> dict[str, Any]:
    return {key: value for key, value in contents(driver.redis).items() if key.startswith(of)}
