"""What a task, a step and a verb cost, in counts that no load changes. A figure is raised by a line in a diff."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner import Crew, Task
from runner.core.plan import Plan, PlannedTask
from runner.engine.local import Steps
from runner.providers.memory import MemoryStore

#: Modules of ours that a verb imports for its help, at most. What reads runs imports no engine and no author's class.
MODULES = {"": 12, "doctor": 15, "worker": 66, "submit": 223, "checkpoint": 118, "files": 73} | dict.fromkeys(
    ("runs", "show", "wait", "events", "cancel", "resume", "answer"), 78
)
#: Those of them that build no model: pydantic takes as long to import as all of ours.
PLAIN = ("", "doctor", "files", "runs", "show", "wait", "events", "cancel", "resume", "answer")
#: What is imported for no one's help.
HEAVY = ("celery", "kombu", "flower", "textual", "crewai", "openai")

CALLS_PER_STEP = 148  #: Python calls that a step adds to a kickoff
CALLS_PER_TASK = 353  #: and a task: 352.0, and up to 0.6 more on a busy machine
MARGIN = 1.0 if sys.version_info[:2] == (3, 11) else 1.1  #: of calls: each Python's library has its own


@pytest.mark.parametrize("verb", MODULES)
def test_a_verb_imports_what_it_needs(verb):
    code = "import sys; from runner.cli import cli; cli.main(sys.argv[1:], standalone_mode=False); print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code, *verb.split(), "--help"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[-1]
    names = said.split()
    ours = [name for name in names if name.partition(".")[0] == "runner"]
    assert len(ours) <= MODULES[verb], f"{verb or 'runner'} --help imports {len(ours)} modules of ours"
    heavy = (*HEAVY, "pydantic", "pathspec", "sqlite3") if verb in PLAIN else HEAVY
    assert not [name for name in names if name.partition(".")[0] in heavy]


def test_a_command_on_the_states_own_redis_imports_nothing_of_celery():
    code = "import sys, runner.cli.submit as verb; verb.options.check_broker(); print(*sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "RUNNER_BROKER_URL"}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert not {"celery", "kombu"}.intersection(said.stdout.split())


def test_who_has_a_client_to_read_runs_imports_no_engine():
    code = (
        """import runner, sys; from runner import Client; Client.runs, Client.batch, Client.run; print(*sys.modules)"""
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    engine = ("runner.engine", "runner.crews", "runner.flows", "runner.agents", "runner.journal", "pydantic")
    assert not [name for name in said.stdout.split() if name.startswith(engine)]


def of_steps(many: int) -> Crew:
    def work(ctx):
        for number in range(many):
            ctx.step("one", int, number)
        return "done"

    return Crew(tasks=[Task(name="all", run=work)])


def of_tasks(many: int) -> Crew:
    return Crew(tasks=[Task(name=f"t{number}", run=lambda ctx: "done") for number in range(many)])


def calls(do: Callable[[], object]) -> int:
    """The Python functions that it calls, on whatever thread."""
    counted: list[str] = []

    def count(frame: object, event: str, argument: object) -> None:
        counted.append(event)

    before, before_on_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        do()
    finally:
        sys.setprofile(before)
        threading.setprofile(before_on_threads)
    return counted.count("call")


@pytest.mark.parametrize(("crew_of", "budget"), [(of_steps, CALLS_PER_STEP), (of_tasks, CALLS_PER_TASK)])
def test_one_more_costs_no_more_than_it_did(crew_of: Callable[[int], Crew], budget: int, tmp_path: Path):
    """In a process of its own: what other tests had imported or registered would be called, too."""
    code = f"import runpy; print(runpy.run_path({__file__!r})['cost_of_one_more']({crew_of.__name__!r}))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert 0 < float(told.stdout) <= budget * MARGIN


def cost_of_one_more(crew_of: str) -> float:
    """The calls of one step or task more."""
    make: Callable[[int], Crew] = globals()[crew_of]
    calls(make(3).kickoff)  # what is done once in a process is done
    return (calls(make(60).kickoff) - calls(make(10).kickoff)) / 50


def test_a_kickoff_keeps_a_step_for_a_tenth_of_what_a_store_in_memory_asks() -> None:
    """Which is one of the reasons why it is no run on one: see docs/internals.md."""
    store, plan = MemoryStore(), Plan("c", (PlannedTask("t"),))
    store.workers.beat("w", 10**9, "{}")
    fields = dict.fromkeys(("bundle", "module", "attr", "adapter"), "") | {"crew": "c", "plan": plan.digest}
    store.runs.create("r", plan, {**fields, "inputs": "{}", "queue": "q", "envelope": "its own", "keep": "1000"})
    claim = store.claim(store.workers.take(["q"]), worker="w", process="p")

    def step(recorder: Any) -> None:
        recorder.begin_step()
        recorder.record_step("s", "1", replayed=0)

    assert 10 * calls(partial(step, Steps({}))) <= calls(partial(step, store.task(claim)))
