"""Workers of other environments: how long each waits for jobs."""

import queue

import pytest
from celery.signals import worker_ready

from runner.bundles.uv_build import FAILED, OWN
from runner.tasks import environments


@pytest.mark.parametrize(("failed", "seconds"), [("", 300.0), ("uv pip: error", environments.FAILED_IDLE)])
def test_one_is_idle_from_when_it_takes_jobs(failed: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes to start it: one that ended before would never do its first job."""
    begun = queue.Queue[float]()
    monkeypatch.setattr(environments, "_watch", begun.put)
    monkeypatch.setattr(worker_ready, "receivers", [])
    monkeypatch.setenv(OWN, "digest")
    if failed:
        monkeypatch.setenv(FAILED, failed)
    environments.end_when_idle()
    assert begun.empty()
    worker_ready.send(sender=None)
    assert begun.get(timeout=60) == seconds
