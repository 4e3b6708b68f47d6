"""What a worker has in its main process before it forks, so that none of its children makes it for itself."""

import pytest
from celery import platforms

from runner.engine import observers
from runner.journal import task_marks
from runner.providers.redis import scripts
from runner.tasks import jobs, pool
from runner.tasks.child import end_with_parent


def test_all_scripts_and_observers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_WORKER_ID", "w-1")
    monkeypatch.setattr(task_marks, "share_sent", lambda *_: "")
    jobs.share()
    asked = [one.cache_info().misses for one in (scripts.load, observers.installed)]
    for name in scripts.names():
        scripts.load(name)
    observers.installed()
    assert [one.cache_info().misses for one in (scripts.load, observers.installed)] == asked


def test_a_child_ends_with_its_worker_without_a_parser_of_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "_set_pdeathsig", None)
    pool.install()
    assert platforms._set_pdeathsig is end_with_parent
