"""Runs of one CrewAI file that calls no code of its own share processes, and each is as in a process of its own."""

import os
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.bundles import thread_directory
from runner.client import Client
from runner.testing import ModelRequest, ModelServer

from ...support.soak import in_soak

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not thread_directory.is_supported(), reason="the system does not let a thread have a directory"),
]

MANY = 12

CREW = """
    from crewai import Agent, Crew, Task

    agent = Agent(role="writer", goal="write", backstory="it writes", llm="openai/gpt-4o-mini",
                  max_execution_time={limit})
    how = dict(expected_output="text", agent=agent)
    crew = Crew(agents=[agent], tasks=[
        Task(name="a", description="Write of {{n}}.", output_file="a.txt", **how), *[
            Task(name=name, description="Write more of {{n}}.", **how) for name in {more!r}
        ],
    ])
    {last}
"""

SUBMITS = """
import sys
from runner.client import Client, prepare

crew = prepare(sys.argv[1])
with Client() as client:
    for number in range(int(sys.argv[2])):
        print(client.submit(crew, {"n": f"run {number}"}).id)
"""

PARTS = "abcdef"

PARALLEL = """
    from crewai import Agent, Crew, Task

    agent = Agent(role="writer", goal="write", backstory="it writes", llm="openai/gpt-4o-mini")
    how = dict(expected_output="text", agent=agent)
    first = Task(name="first", description="Write first of all.", **how)
    parts = [
        Task(name=name, description=f"Write {name} of all.", async_execution=True, context=[first], **how)
        for name in "abcdef"
    ]
    last = Task(name="last", description="Write last of all.", context=parts, **how)
    crew = Crew(agents=[agent], tasks=[first, *parts, last])
"""

OF_ITS_OWN = "crew.tasks[0].callback = lambda output: None"


@pytest.fixture
def crew(write_crew: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    def made(name: str = "crew", more: str = "", last: str = "", limit: float | None = None) -> str:
        return str(write_crew(CREW.format(more=more, last=last, limit=limit), name))

    return made


@pytest.fixture
def submitted(crewai_fleet: Any, run_crewai: Callable[..., Any]) -> Callable[..., list[str]]:
    """Runs of a file, one submitted after the other, by one process that has read it."""

    def submit(crew: str, times: int = MANY) -> list[str]:
        done = run_crewai("-c", SUBMITS, crew, str(times), env=crewai_fleet.environment())
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return submit


@pytest.fixture
def held(
    crewai_fleet: Any, held_back: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ModelServer, threading.Event]]:
    """The model that workers ask, and what it waits for: then it says which run has asked."""

    def said(request: ModelRequest) -> str:
        return str(request.body).partition("of run ")[2].partition(".")[0]

    with held_back(said) as (models, may_answer):
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        yield models, may_answer


@pytest.fixture
def at(redis: Any) -> Callable[[Iterable[str]], Counter[int]]:
    """The processes that do tasks of runs, each with how many."""

    def find(runs: Iterable[str]) -> Counter[int]:
        records = (f"runner:{{p0}}:run:{run}:branch:main:task:*" for run in runs)
        found = (redis.hget(key, "process") for record in records for key in redis.scan_iter(record))
        return Counter(int(process.partition("-")[0]) for process in found if process)

    return find


@pytest.fixture
def ends_of(client: Client) -> Callable[[Iterable[str]], list[Any]]:
    """How runs end."""
    return lambda runs: [client.run(run).wait(100) for run in runs]


def test_each_is_told_and_keeps_its_own(
    held: Any, crewai_fleet: Any, ends_of: Any, crew: Any, submitted: Any, at: Any, tmp_path: Path
) -> None:
    models, may_answer = held
    cache = tmp_path / "cache"
    crewai_fleet.start("--pool", "prefork", RUNNER_CACHE_DIR=str(cache))
    # Given runs that come one after the other, and wait for the model
    runs = submitted(crew(more="b"))
    models.wait_for(MANY, 200)
    # Then they wait at the same time, in fewer processes than there are of them
    assert models.at_once == MANY
    assert sum(at(runs).values()) == MANY > 2 * len(at(runs))
    may_answer.set()
    # and each is told what it asked, pays for that alone, and none is begun again
    ends = ends_of(runs)
    assert [end.outputs for end in ends] == [{"a": str(n), "b": str(n)} for n in range(MANY)]
    assert [(end.ledger["paid"], end.ledger["in_doubt"], end.recoveries) for end in ends] == [(2, 0, 0)] * MANY
    assert models.summary()["requests"] == 2 * MANY
    # and has the file that its task wrote, and in its own storage what CrewAI kept of it
    for number, run in enumerate(runs):
        [kept] = (cache / "runs").glob(f"*/{run}/main/storage/latest_kickoff_task_outputs.db")
        with sqlite3.connect(kept) as database:
            rows = database.execute("select inputs from latest_kickoff_task_outputs").fetchall()
        assert {row[0] for row in rows} == {f'{{"n": "run {number}"}}'}


@pytest.mark.parametrize("end", ["kill", "SIGTERM", *in_soak("kill the worker")])
def test_an_end_of_the_process_costs_each_the_call_that_was_out(
    end: str, held: Any, crewai_fleet: Any, ends_of: Any, crew: Any, submitted: Any, at: Any
) -> None:
    models, may_answer = held
    worker = crewai_fleet.start("--drain-timeout", "0.5")
    runs = submitted(crew())
    models.wait_for(MANY, 200)
    if end == "kill":
        pid, repeated = at(runs).most_common(1)[0]
        os.kill(pid, signal.SIGKILL)
    else:
        repeated = MANY
        (worker.kill_group if end == "kill the worker" else worker.terminate)()
        crewai_fleet.start("--pool", "prefork")
    # Then all the calls that were out there are made again, and no other
    models.wait_for(MANY + repeated, 200)
    may_answer.set()
    ends = ends_of(runs)
    assert [one.status for one in ends] == ["completed"] * MANY
    counted = (sum(one.ledger["paid"] for one in ends), sum(one.ledger["in_doubt"] for one in ends))
    assert counted == (MANY, repeated)
    assert models.summary()["requests"] == MANY + repeated


def test_parallel_tasks_of_one_run_share_a_process_and_each_is_done_again_where_that_dies(
    crewai_fleet: Any, client: Client, write_crew: Any, at: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    may_answer = threading.Event()

    def answer(request: ModelRequest) -> str:
        name = str(request.body).partition("Write ")[2].partition(" of all")[0]
        assert name == "first" or may_answer.wait(300)
        return name

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with ModelServer(answer) as models:
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        # Given a run with tasks that are ready at once, which wait
        crewai_fleet.start("--pool", "prefork")
        submitted = crewai_fleet.runner("submit", str(write_crew(PARALLEL)), "--detach")
        assert submitted.returncode == 0, submitted.stderr
        run = submitted.stdout.split()[-1]
        models.wait_for(1 + len(PARTS), 200)
        # When the process dies that has most of them
        pid, many = at([run]).most_common(1)[0]
        assert many > 1
        os.kill(pid, signal.SIGKILL)
        # Then each that it had asks again, and no other does
        models.wait_for(1 + len(PARTS) + many, 200)
        may_answer.set()
        end = client.run(run).wait(200)
        assert end.outputs == {name: name for name in ("first", *PARTS, "last")}
        assert (end.ledger["paid"], end.ledger["in_doubt"]) == (2 + len(PARTS), many)
        assert models.summary()["requests"] == 2 + len(PARTS) + many


def test_a_task_whose_processes_die_fails_its_own_run_alone(
    held: Any, crewai_fleet: Any, ends_of: Any, crew: Any, submitted: Any, at: Any
) -> None:
    models, may_answer = held
    crewai_fleet.start("--pool", "prefork", RUNNER_MAX_ATTEMPTS="2")
    runs = submitted(crew(), 6)
    models.wait_for(6, 200)
    # Given tasks whose process died
    pid, many = at(runs).most_common(1)[0]
    assert many > 1
    repeated = {run for run in runs if pid in at([run])}
    os.kill(pid, signal.SIGKILL)
    models.wait_for(6 + many, 200)
    # Then, as the next time would be the last, each is alone
    assert set(at(repeated).values()) == {1}
    # and where that is killed, too, no other run fails of it
    killed = sorted(repeated)[0]
    [last] = at([killed])
    os.kill(last, signal.SIGKILL)
    may_answer.set()
    ends = dict(zip(runs, ends_of(runs), strict=True))
    assert {run for run, end in ends.items() if end.status == "failed"} == {killed}
    assert "its worker died 2 times in a row" in (ends[killed].error or "")
    assert {end.status for run, end in ends.items() if run != killed} == {"completed"}


def test_the_time_of_one_is_up_and_others_continue(
    held: Any, crewai_fleet: Any, ends_of: Any, crew: Any, submitted: Any, at: Any
) -> None:
    models, may_answer = held
    crewai_fleet.start("--pool", "prefork")
    timed, others = crew("timed", limit=20), crew("others")
    runs, patient = submitted(timed, 6), submitted(others, 6)
    models.wait_for(12, 200)
    assert max(at(runs).values()) > 1
    # When the model does not answer, those end whose time is up, each with its one call
    found = {(end.status, end.error and "longer than its timeout" in end.error) for end in ends_of(runs)}
    assert found == {("failed", True)}
    may_answer.set()
    assert [end.status for end in ends_of(patient)] == ["completed"] * 6
    assert models.summary()["requests"] == 12


def test_a_run_that_is_cancelled_leaves_the_others(
    held: Any, crewai_fleet: Any, client: Client, ends_of: Any, crew: Any, submitted: Any, at: Any, eventually: Any
) -> None:
    models, may_answer = held
    crewai_fleet.start("--pool", "prefork")
    runs = submitted(crew(), 8)
    models.wait_for(8, 200)
    client.run(runs[3]).cancel()
    eventually(lambda: sum(at(runs).values()) == 7, within=60, why="its task is stopped in its call")
    may_answer.set()
    assert [end.status for end in ends_of(runs)] == [*["completed"] * 3, "cancelled", *["completed"] * 4]
    assert models.summary()["requests"] == 8


def test_what_calls_code_of_its_own_has_its_own_process_beside_them(
    held: Any, crewai_fleet: Any, ends_of: Any, crew: Any, submitted: Any, at: Any
) -> None:
    models, may_answer = held
    crewai_fleet.start("--pool", "prefork")
    plain, other = crew("plain"), crew("another", more="b")
    alone = crew("alone", last=OF_ITS_OWN)
    runs = {name: submitted(one, 6) for name, one in (("p", plain), ("o", other), ("a", alone))}
    models.wait_for(18, 200)
    # Then no process does tasks of two files, and those of the file with a callback have one each
    found = {name: at(ids) for name, ids in runs.items()}
    assert list(found["a"].values()) == [1] * 6
    assert not (found["p"].keys() & found["o"].keys()) | (found["a"].keys() & (found["p"] + found["o"]).keys())
    assert max(found["p"].values()) > 1 < max(found["o"].values())
    may_answer.set()
    ends = [end for ids in runs.values() for end in ends_of(ids)]
    assert [end.status for end in ends] == ["completed"] * 18
    assert models.summary()["requests"] == 24 == sum(end.ledger["paid"] for end in ends)
