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
    monkeypatch.setattr(capacity, "waiting_processes", lambda: 90)
    monkeypatch.setattr(capacity, "_threads", lambda: 2**20)
    assert capacity.described() == (
        "2000 tasks that mostly wait, 4 with a process each, up to 90 whose process ends with them, "
        "while that waits for a model, and beside them up to 500 of crews that call no code of their own, "
        "in processes that they share"
    )


def test_auto_is_a_worker_of_each_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "processes", lambda: 4)
    monkeypatch.setattr(capacity, "waiting_processes", lambda: 90)
    assert [(one["RUNNER_SERVES"], one["RUNNER_CONCURRENCY"]) for one in capacity.parts("auto", 2)] == [
        ("process", "2"), ("thread", "2"),
    ]  # fmt: skip
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", 50)] == ["16", "50"]
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", None)] == ["4", str(capacity.agents())]
    assert [one["RUNNER_POOL"] for one in capacity.parts("auto", None)] == ["prefork", "shared"]
    late = capacity.parts("auto", None, on_demand=True)
    assert [(capacity.ON_DEMAND in one, capacity.STARTS_PROCESSES in one) for one in late] == [
        (True, False), (False, True),
    ]  # fmt: skip
    assert capacity.parts("prefork", 1, on_demand=True) == capacity.parts("prefork", 1)
    assert capacity.parts("threads", 7) == [{"RUNNER_POOL": "threads", "RUNNER_CONCURRENCY": "7"}]
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("auto", 5, servers=3)] == ["2", "2"]
    assert [one["RUNNER_CONCURRENCY"] for one in capacity.parts("prefork", 1, servers=3)] == ["1"]


def test_processes_that_wait_for_models_by_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "processes", lambda: 2)
    plenty = 2**40
    assert capacity.waiting_processes(4 * 2**30, plenty, plenty) == 76
    assert capacity.waiting_processes(plenty, plenty, plenty) == capacity.WAITING
    assert capacity.waiting_processes(plenty, 4096, plenty) == 352
    assert capacity.waiting_processes(plenty, plenty, 1024) == 64
    assert capacity.waiting_processes(2**20, 1024, 10) == 2


@pytest.mark.parametrize(("memory", "files", "threads", "asked", "many"), [
    (2**40, 2**20, 2**20, None, 500), (2**30, 2**20, 2**20, None, 192), (2**40, 1024, 2**20, None, 96),
    (2**40, 64, 2**20, None, 0), (2**40, 2**20, 1024, None, 256),
    (2**40, 2**20, 2**20, 100, 10), (2**40, 2**20, 2**20, 50, 0),
])  # fmt: skip
def test_tasks_that_share_processes_by_what_the_machine_has(
    memory: int, files: int, threads: int, asked: int | None, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(capacity.SHARED, raising=False)
    monkeypatch.setattr(capacity, "processes", lambda: 4)
    monkeypatch.setattr(capacity, "waiting_processes", lambda: 90)
    monkeypatch.setattr(capacity, "machine_memory", lambda: memory)
    monkeypatch.setattr(capacity, "_files", lambda: files)
    monkeypatch.setattr(capacity, "_threads", lambda: threads)
    assert capacity.parts("auto", asked)[0][capacity.SHARED] == str(many)


def test_a_pool_may_open_more_files_if_its_processes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(capacity.MOST, "90")
    monkeypatch.setenv(capacity.SHARED, "0")
    assert not capacity.needs_files()
    monkeypatch.setenv(capacity.SHARED, "200")
    assert capacity.needs_files()


def test_another_process_leaves_memory_for_the_answers_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may come all at the same time."""
    monkeypatch.setattr(capacity, "_available", lambda: 500 * 2**20)
    assert capacity.has_room(0)
    assert capacity.has_room(52)
    assert not capacity.has_room(53)
    monkeypatch.setattr(capacity, "_available", lambda: None)  # the system does not say
    assert capacity.has_room(1000)


@pytest.mark.parametrize(("pool", "asked", "most"), [
    ("auto", None, 90), ("auto", 1, 1), ("auto", 20, 20), ("auto", 400, 90), ("prefork", None, 90), ("prefork", 99, 99),
])  # fmt: skip
def test_processes_at_most(pool: str, asked: int | None, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "processes", lambda: 4)
    monkeypatch.setattr(capacity, "waiting_processes", lambda: 90)
    assert capacity.parts(pool, asked)[0][capacity.MOST] == str(most)


def test_a_worker_shares_a_place_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_CONCURRENCY", "8")
    assert capacity.slots() == 8
    monkeypatch.setenv(capacity.MOST, "90")
    assert capacity.slots() == 90


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
