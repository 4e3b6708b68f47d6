"""The settings table in docs/operations.md is whole."""

import os
import re
from pathlib import Path

import pytest

from runner.client import submission
from runner.core import hash_seed, settings
from runner.core.settings import WorkerSettings
from runner.tasks import capacity


def test_every_variable_that_is_read_is_in_the_table_and_no_other(root: Path) -> None:
    read: set[str] = set()
    for folder in ("runner", "tasks", "providers"):
        for path in (root / folder).rglob("*.py"):
            read |= set(re.findall(r"\"(RUNNER_[A-Z_]+)", path.read_text()))
    table = set(re.findall(r"^\| `(RUNNER_[A-Z_]+)`", (root / "docs/operations.md").read_text(), re.MULTILINE))
    assert table == read - settings.INTERNAL - {"RUNNER_CRASH_AT"}  # that one is for tests
    assert table == set(settings.KNOWN)


def test_the_defaults_are_those_of_the_code(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RUNNER_")]:
        monkeypatch.delenv(name)
    page = (root / "docs/operations.md").read_text()
    rows = [[cell.strip(" `") for cell in row.split("|")[1:4]] for row in page.splitlines() if row.startswith("|")]
    numbers = {variable or flag: re.fullmatch(r"([\d.]+)(?: \(.*\))?", default) for variable, flag, default in rows}
    said = {name: float(number[1]) for name, number in numbers.items() if number}
    worker = WorkerSettings()
    assert said == {
        "RUNNER_CACHE_LIMIT": settings.cache_limit(),
        "RUNNER_BUNDLE_LIMIT": settings.bundle_limit(),
        "submit --keep": submission.KEEP,
        "RUNNER_LEASE": worker.lease,
        "RUNNER_DRAIN_TIMEOUT": worker.drain_timeout,
        "RUNNER_MAX_ATTEMPTS": worker.max_attempts,
        "RUNNER_STALL": worker.stall,
        "RUNNER_TIME_SLICE": worker.time_slice,
        "RUNNER_SHARED": capacity.WAITING,
        "RUNNER_WAIT_REPLICAS": worker.wait_replicas,
        "RUNNER_WAIT_TIMEOUT": worker.wait_timeout,
        "RUNNER_RESEND_AFTER": worker.resend_after,
        "RUNNER_ENVIRONMENT_IDLE": settings.environment_idle(),
        "RUNNER_DEMO_DELAY": settings.demo_delay(),
        "RUNNER_REDIS_GRACE": settings.redis_grace(),
        hash_seed.NAME: int(hash_seed.SEED),
    }
