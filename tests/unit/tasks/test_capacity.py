"""How many tasks a worker takes, by what it has."""

import pytest

from runner.core.errors import UsageError
from runner.tasks import capacity


@pytest.mark.parametrize(("memory", "threads", "agents"), [
    (2**20, 16, 16), (512 * 2**20, 128, 512), (64 * 2**30, 200, 2000),
])  # fmt: skip
def test_tasks_that_wait_by_memory(memory: int, threads: int, agents: int) -> None:
    assert (capacity.threads(memory), capacity.agents(memory, 2**20)) == (threads, agents)


def test_each_that_waits_may_have_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capacity.agents(2**40, 1024) == 1024 - capacity.FILES
    assert capacity.agents(2**40, 64) == capacity.LEAST
    monkeypatch.setattr(capacity.resource, "getrlimit", lambda _: (1024, capacity.resource.RLIM_INFINITY))
    assert capacity.agents(2**40) == capacity.AGENTS
    monkeypatch.setattr(capacity, "machine_memory", lambda: 2**40)
    monkeypatch.setattr(capacity, "processes", lambda: 4)
    assert capacity.described() == "2000 tasks that mostly wait, and 4 with a process each"


def test_auto_is_a_worker_of_each_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "processes", lambda: 4)
    assert [(one["RUNNER_SERVES"], one["RUNNER_CONCURRENCY"]) for one in capacity.parts("auto", 2)] == [
        ("process", "2"), ("thread", "2"),
    ]  # fmt: skip
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", 50)] == ["16", "50"]
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", None)] == ["4", str(capacity.agents())]
    assert [one["RUNNER_POOL"] for one in capacity.parts("auto", None)] == ["prefork", "shared"]
    assert capacity.parts("prefork", None) == [{"RUNNER_POOL": "prefork", "RUNNER_CONCURRENCY": "4"}]
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", 5, servers=3)] == ["2", "2"]
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("prefork", 1, servers=3)] == ["1"]


def test_threads_where_they_are_wanted_or_nothing_else_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_WAITING_POOL", "threads")
    assert capacity.parts("auto", None)[1]["RUNNER_POOL"] == "threads"
    assert capacity.parts("auto", None)[1]["RUNNER_CONCURRENCY"] == str(capacity.threads())
    monkeypatch.setenv("RUNNER_WAITING_POOL", "greenlets")
    with pytest.raises(UsageError, match="must be shared or threads, got 'greenlets'"):
        capacity.parts("auto", None)
    monkeypatch.delenv("RUNNER_WAITING_POOL")
    monkeypatch.setattr(capacity, "find_spec", lambda _: None)
    assert capacity.parts("auto", None)[1]["RUNNER_POOL"] == "threads"
