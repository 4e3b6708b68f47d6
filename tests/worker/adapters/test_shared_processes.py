"""Runs of one CrewAI file that calls no code of its own share processes, and each is as in a process of its own."""

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from runner.bundles import thread_directory
from runner.client import Client
from runner.testing import ModelRequest

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not thread_directory.is_supported(), reason="the system does not let a thread have a directory"),
]

MANY = 24

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

OF_ITS_OWN = "crew.tasks[0].callback = lambda output: None"


@pytest.fixture
def crew(write_crew: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    def made(name: str = "crew", more: str = "", last: str = "", limit: float | None = None) -> str:
        return str(write_crew(CREW.format(more=more, last=last, limit=limit), name))

    return made


@pytest.fixture
def at(redis: Any) -> Callable[[Iterable[str]], Counter[int]]:
    """The processes that do tasks of runs, each with how many."""

    def find(runs: Iterable[str]) -> Counter[int]:
        records = (f"runner:{{p0}}:run:{run}:branch:main:task:*" for run in runs)
        found = (redis.hget(key, "process") for record in records for key in redis.scan_iter(record))
        return Counter(int(process.partition("-")[0]) for process in found if process)

    return find


def _said(request: ModelRequest) -> str:
    """Which run asks."""
    text = str(request.body)
    return text.partition("of run ")[2].partition(".")[0]


def _submitted(fleet: Any, crew: str, times: int = MANY, first: int = 0) -> list[str]:
    numbers = range(first, first + times)
    done = [fleet.runner("submit", crew, "--detach", "--input", f"n=run {number}") for number in numbers]
    assert all(one.returncode == 0 for one in done), done[0].stderr
    return [one.stdout.split()[-1] for one in done]


def test_each_is_told_and_keeps_its_own(
    crewai_fleet: Any,
    client: Client,
    crew: Any,
    at: Any,
    held_back: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    with held_back(_said) as (models, may_answer):
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        crewai_fleet.start("--pool", "prefork", RUNNER_CACHE_DIR=str(cache))
        # Given runs that come one after the other, and wait for the model
        runs = _submitted(crewai_fleet, crew(more="b"))
        models.wait_for(MANY, 200)
        # Then they wait at the same time, in fewer processes than there are of them
        assert models.at_once == MANY
        assert sum(at(runs).values()) == MANY > 2 * len(at(runs))
        may_answer.set()
        ends = [client.run(run).wait(100) for run in runs]
        # and each is told what it asked, pays for that alone, and none is begun again
        assert [end.outputs for end in ends] == [{"a": str(n), "b": str(n)} for n in range(MANY)]
        assert [(end.ledger["paid"], end.ledger["in_doubt"], end.recoveries) for end in ends] == [(2, 0, 0)] * MANY
        assert models.summary()["requests"] == 2 * MANY
    # and has the file that its task wrote, and in its own storage what CrewAI kept of it
    for number, run in enumerate(runs):
        [kept] = (cache / "runs").glob(f"*/{run}/main/storage/latest_kickoff_task_outputs.db")
        with sqlite3.connect(kept) as database:
            rows = database.execute("select inputs from latest_kickoff_task_outputs").fetchall()
        assert {row[0] for row in rows} == {f'{{"n": "run {number}"}}'}


@pytest.mark.parametrize("end", ["kill", "kill the worker", "SIGTERM"])
def test_an_end_of_the_process_costs_each_the_call_that_was_out(
    end: str, crewai_fleet: Any, client: Client, crew: Any, at: Any, held_back: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_back() as (models, may_answer):
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        worker = crewai_fleet.start("--pool", "prefork", "--drain-timeout", "0.5")
        runs = _submitted(crewai_fleet, crew())
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
        ends = [client.run(run).wait(100) for run in runs]
        assert [one.status for one in ends] == ["completed"] * MANY
        assert (sum(one.ledger["paid"] for one in ends), sum(one.ledger["in_doubt"] for one in ends)) == (
            MANY,
            repeated,
        )
        assert models.summary()["requests"] == MANY + repeated


def test_a_task_whose_processes_die_fails_its_own_run_alone(
    crewai_fleet: Any,
    client: Client,
    crew: Any,
    at: Any,
    held_back: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
) -> None:
    with held_back() as (models, may_answer):
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        crewai_fleet.start("--pool", "prefork", RUNNER_MAX_ATTEMPTS="2")
        runs = _submitted(crewai_fleet, crew(), 6)
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
        ends = {run: client.run(run).wait(100) for run in runs}
        assert {run for run, end in ends.items() if end.status == "failed"} == {killed}
        assert "its worker died 2 times in a row" in (ends[killed].error or "")
        assert {end.status for run, end in ends.items() if run != killed} == {"completed"}


def test_the_time_of_one_is_up_and_others_continue(
    crewai_fleet: Any,
    client: Client,
    crew: Any,
    at: Any,
    held_back: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
) -> None:
    with held_back() as (models, may_answer):
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        crewai_fleet.start("--pool", "prefork")
        timed, others = crew("timed", limit=20), crew("others")
        runs, patient = _submitted(crewai_fleet, timed, 6), _submitted(crewai_fleet, others, 6)
        models.wait_for(12, 200)
        assert max(at(runs).values()) > 1
        # When the model does not answer, those end whose time is up, each with its one call
        ends = [client.run(run).wait(100) for run in runs]
        assert {(end.status, end.error and "longer than its timeout" in end.error) for end in ends} == {
            ("failed", True)
        }
        may_answer.set()
        assert [client.run(run).wait(100).status for run in patient] == ["completed"] * 6
        assert models.summary()["requests"] == 12


def test_a_run_that_is_cancelled_leaves_the_others(
    crewai_fleet: Any,
    client: Client,
    crew: Any,
    at: Any,
    held_back: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
) -> None:
    with held_back() as (models, may_answer):
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        crewai_fleet.start("--pool", "prefork")
        runs = _submitted(crewai_fleet, crew(), 8)
        models.wait_for(8, 200)
        client.run(runs[3]).cancel()
        eventually(lambda: sum(at(runs).values()) == 7, within=60, why="its task is stopped in its call")
        may_answer.set()
        ends = [client.run(run).wait(100).status for run in runs]
        assert ends == [*["completed"] * 3, "cancelled", *["completed"] * 4]
        assert models.summary()["requests"] == 8


def test_what_calls_code_of_its_own_has_its_own_process_beside_them(
    crewai_fleet: Any, client: Client, crew: Any, at: Any, held_back: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_back() as (models, may_answer):
        monkeypatch.setenv("OPENAI_BASE_URL", models.root + "/v1")
        crewai_fleet.start("--pool", "prefork")
        plain, other = crew("plain"), crew("another", more="b")
        alone = crew("alone", last=OF_ITS_OWN)
        runs = {name: _submitted(crewai_fleet, one, 6) for name, one in (("p", plain), ("o", other), ("a", alone))}
        models.wait_for(18, 200)
        # Then no process does tasks of two files, and those of the file with a callback have one each
        found = {name: at(ids) for name, ids in runs.items()}
        assert list(found["a"].values()) == [1] * 6
        assert not (found["p"].keys() & found["o"].keys()) | (found["a"].keys() & (found["p"] + found["o"]).keys())
        assert max(found["p"].values()) > 1 < max(found["o"].values())
        may_answer.set()
        ends = [client.run(run).wait(100) for ids in runs.values() for run in ids]
        assert [end.status for end in ends] == ["completed"] * 18
        assert models.summary()["requests"] == 24 == sum(end.ledger["paid"] for end in ends)
