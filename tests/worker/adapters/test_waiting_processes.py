"""A worker has as many of CrewAI's tasks in flight as wait for their models, and not only one for each core."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client, prepare
from runner.testing import ModelRequest, ModelServer

pytestmark = pytest.mark.timeout(300)

CORES = os.cpu_count() or 2
BESIDE = 4  #: tasks in flight beyond as many as there are cores

CREW = """
    from crewai import LLM, Agent, Crew, Task

    llm = LLM(model="openai/gpt-4o-mini", base_url={url!r}, api_key="sk-secret")
    agent = Agent(role="writer", goal="write", backstory="it writes", llm=llm)
    how = dict(description="Write.", expected_output="text", agent=agent)
    crew = Crew(agents=[agent], tasks=[Task(name=name, **how) for name in {tasks!r}])
"""
PLAIN = """
    from runner import Crew, Task

    def plain(ctx):
        import select, tempfile
        with tempfile.TemporaryFile() as file:  # its number is one that `select` knows
            return str(len(select.select([file], [], [], 0)[0]))

    crew = Crew(tasks=[Task(name="t", run=plain)])
"""


ALONE = {"RUNNER_SHARED": "0"}  #: each task has a process


def _submitted(fleet: Any, crew: str, times: int) -> list[str]:
    return [fleet.runner("submit", crew, "--detach").stdout.split()[-1] for _ in range(times)]


def test_those_that_wait_take_no_place_and_each_kill_costs_the_calls_that_were_out(
    crewai_fleet: Any,
    client: Client,
    write_crew: Callable[..., Path],
    eventually: Callable[..., Any],
    held_back: Any,
) -> None:
    with held_back() as (models, may_answer):
        crew, plain = (
            str(write_crew(CREW.format(url=models.root + "/v1", tasks="a"))),
            prepare(str(write_crew(PLAIN, "plain"))),
        )
        # Given a worker as it is by itself
        worker = crewai_fleet.start("--pool", "prefork", **ALONE)
        # When more runs of CrewAI's are submitted than the machine has cores
        many = CORES + BESIDE
        runs = _submitted(crewai_fleet, crew, many)
        # Then all of them ask their models at the same time, and there is still a place for each core
        models.wait_for(many, 200)
        assert models.at_once == many
        eventually(lambda: len(worker.children()) == many + CORES)
        assert client.submit(plain, {}).wait(60).result == "1"

        # When one process of these is killed, then its task alone is done again, by another
        os.kill(min(worker.children()), 9)  # that of the first
        models.wait_for(many + 1, 60)
        eventually(lambda: len(worker.children()) == many + CORES)

        # When all of them are, then another worker does all
        worker.kill_group()
        other = crewai_fleet.start("--pool", "prefork", **ALONE)
        models.wait_for(2 * many + 1, 200)
        may_answer.set()
        ends = [client.run(run).wait(60) for run in runs]
        assert [end.status for end in ends] == ["completed"] * many
        assert [end.ledger["paid"] for end in ends] == [1] * many
        assert sorted(end.ledger["in_doubt"] for end in ends) == [1] * (many - 1) + [2]
        assert models.summary()["requests"] == 2 * many + 1
        # and as many processes stay as there are cores
        eventually(lambda: len(other.children()) == CORES)


def test_a_bound_is_one_on_those_too(
    crewai_fleet: Any, client: Client, write_crew: Callable[..., Path], held_back: Any, eventually: Callable[..., Any]
) -> None:
    with held_back() as (models, may_answer):
        crew = str(write_crew(CREW.format(url=models.root + "/v1", tasks="a")))
        worker = crewai_fleet.start("--concurrency", "1", **ALONE)
        runs = _submitted(crewai_fleet, crew, 2)
        models.wait_for(1, 60)
        eventually(lambda: len(worker.children()) == 1, why="the other one waits in the queue")
        may_answer.set()
        assert [client.run(run).wait(60).status for run in runs] == ["completed"] * 2
        assert models.at_once == 1
    eventually(lambda: len(worker.children()) == 1)


def test_one_that_continues_with_the_runs_next_tasks_has_one_more_process_in_its_place_and_not_one_for_each(
    crewai_fleet: Any, client: Client, write_crew: Callable[..., Path], held_back: Any, eventually: Callable[..., Any]
) -> None:
    last = 4

    def answer(request: ModelRequest) -> str:
        if request.number == last:
            may_answer.clear()
        may_answer.wait(60)
        return "Done."

    may_answer = threading.Event()
    may_answer.set()
    with ModelServer(answer) as models:
        crew = str(write_crew(CREW.format(url=models.root + "/v1", tasks="abcd")))
        worker = crewai_fleet.start("--pool", "prefork", **ALONE)
        [run] = _submitted(crewai_fleet, crew, 1)
        # When the last of its tasks waits, each of which waited in the same process
        models.wait_for(last, 60)
        try:
            eventually(lambda: len(worker.children()) == CORES + 1)
        finally:
            may_answer.set()
        assert client.run(run).wait(60).status == "completed"
        eventually(lambda: len(worker.children()) == CORES)
