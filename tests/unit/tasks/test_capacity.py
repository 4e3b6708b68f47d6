"""How many tasks a worker takes, by what it has."""

import pytest

from runner.tasks import capacity


@pytest.mark.parametrize(("memory", "most"), [(2**20, 16), (512 * 2**20, 128), (64 * 2**30, 200)])
def test_tasks_that_wait_by_memory(memory: int, most: int) -> None:
    assert capacity.threads(memory) == most


def test_auto_is_a_worker_of_each_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "processes", lambda: 4)
    assert [(one["RUNNER_SERVES"], one["RUNNER_CONCURRENCY"]) for one in capacity.parts("auto", 2)] == [
        ("process", "2"), ("thread", "2"),
    ]  # fmt: skip
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", 50)] == ["16", "50"]
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", None)] == ["4", str(capacity.threads())]
    assert capacity.parts("prefork", None) == [{"RUNNER_POOL": "prefork", "RUNNER_CONCURRENCY": "4"}]
