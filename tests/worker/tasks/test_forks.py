"""Branches side by side while their workers are killed: each task committed once on each, each step paid once."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.client import Client, RunHandle

#: What each task does says on which branch; what it gives says what it was made of.
TASKS = """
    def made(label, n=5):
        def run(ctx):
            for i in range(n):
                if i == n // 2 and label == "b" and ctx.branch in ("main", "from/the-start"):
                    hold(ctx.branch)
                ctx.step("work", work, f"{ctx.branch} {label}", i, 0.03)
            word = ctx.inputs.get(label, label)
            return f"{word}({','.join(output.raw for output in ctx.context)})"
        return run
    a = Task(name="a", run=made("a"), context=[])
    b = Task(name="b", run=made("b", 12), context=[a])
    c = Task(name="c", run=made("c"), context=[a])
    d = Task(name="d", run=made("d"), context=[b, c])
    e = Task(name="e", run=made("e"), context=[d])
    crew = Crew(process=Process.graph, tasks=[a, b, c, d, e])
"""


def did(handle: RunHandle) -> Counter[str]:
    """How often each task was committed on the handle's branch."""
    return Counter(e.fields["task"] for e in handle.events() if e.type == "task_completed")


@pytest.fixture
def each_once(trace: Any) -> Callable[[list[RunHandle]], None]:
    """The count at the end: per branch each task committed once; each step paid once but for those in doubt."""

    def check(handles: list[RunHandle]) -> None:
        for handle in handles:
            line = handle.client.store.runs.branch(handle.id, str(handle.branch))
            assert line.status == "completed", line
            todo = handle.client.store.runs.branch_plan(handle.id, line.name).by_key.keys()
            assert did(handle) == dict.fromkeys(todo, 1), line
        in_doubt = handles[0].record.in_doubt
        assert trace.repeated() <= in_doubt, (trace.steps(), in_doubt)

    return check


def test_workers_are_killed_while_branches_go_on_side_by_side(
    fleet: Any, client: Client, crew_of: Any, trace: Any, eventually: Any, each_once: Any
) -> None:
    for _ in range(2):
        fleet.start("--concurrency", "4")
    run = client.submit(crew_of(TASKS))
    main = client.run(run.id, "main")
    eventually(lambda: "c" in did(main) and trace.held("main"), why="main has done a and c, and is in b")
    handles = [main, run.fork(edits={"a": "A"}), run.fork(edits={"c": "C"}), run.fork(inputs={"c": "other"})]
    eventually(lambda: trace.steps()[f"step {handles[1].branch} b 1"], why="the first fork is at work")
    trace.let_go("main")
    fleet.workers[0].kill_group()
    fleet.start("--concurrency", "4")
    first = client.checkpoints(run.id, "main")[0].id
    handles += [run.fork(checkpoint=first, branch="from/the-start"), handles[1].fork(edits={"a": "AA"})]
    eventually(lambda: trace.held("from/the-start"), why="the last fork is at work")
    (held,) = (t.worker for t in client.store.runs.in_flight(run.id, "from/the-start") if t.task == "b")
    for worker in fleet.workers[1:]:
        os.kill(random.choice(eventually(worker.children, why="it has a pool")), signal.SIGKILL)
    next(worker for worker in fleet.workers[1:] if worker.about().get("id") == held).kill_group()
    trace.let_go()
    results = [handle.wait(90).result for handle in handles]

    each_once(handles)
    assert results == [
        "e(d(b(a()),c(a())))", "e(d(b(A),c(A)))", "e(d(b(a()),C))", "e(d(b(a()),other(a())))",
        "e(d(b(a()),c(a())))", "e(d(b(AA),c(AA)))",
    ]  # fmt: skip
    assert run.record.recoveries >= 1
    # Nothing that was done and did not change was done again
    redone = [sorted(did(handle)) for handle in handles[1:]]
    assert redone[0] == ["b", "c", "d", "e"]
    assert redone[1] == ["b", "d", "e"], "b was in flight when the fork left"
    assert redone[2] == ["b", "c", "d", "e"]
    assert redone[3] == ["b", "c", "d", "e"]
    assert redone[4] == ["b", "c", "d", "e"]


def test_a_fork_goes_on_though_who_asked_for_it_is_killed(
    fleet: Any, client: Client, crew_of: Any, trace: Any, each_once: Any, tmp_path: Path
) -> None:
    fleet.start("--concurrency", "2")
    trace.let_go()
    run = client.submit(crew_of(TASKS))
    run.wait(60)
    flag = tmp_path / "crashed"
    said = fleet.runner(
        "fork", run.id, "--edit", "c=C", "--branch", "x", RUNNER_CRASH_AT=f"forked, nothing waited for:{flag}"
    )
    assert (said.returncode, flag.exists()) == (-signal.SIGKILL, True)
    handle = client.run(run.id, "x")
    assert handle.wait(60).result == "e(d(b(a()),C))"
    each_once([client.run(run.id, "main"), handle])
    assert sorted(did(handle)) == ["d", "e"]


def test_a_fork_of_a_failed_run_does_not_pay_again_for_what_was_recorded(
    fleet: Any, client: Client, crew_of: Any, trace: Any
) -> None:
    """The task that failed comes along with its steps, as long as what it works on is the same."""
    fleet.start("--concurrency", "1")
    tasks = """
        def cheap(ctx):
            return "cheap"
        def dear(ctx):
            paid = [ctx.step("work", work, "dear", i, 0)["i"] for i in range(5)]
            if ctx.branch == "main":
                raise ValueError("after five calls")
            return f"{len(paid)} calls, {ctx.outputs['cheap'].raw}"
        cheap = Task(name="cheap", run=cheap, context=[])
        crew = Crew(process=Process.graph, tasks=[cheap, Task(name="beside", run=lambda ctx: "", context=[cheap]),
                                                  Task(name="dear", run=dear, context=[cheap])])
    """
    run = client.submit(crew_of(tasks))
    assert run.wait(60).status == "failed"
    fork = run.fork(edits={"beside": "by hand"})
    assert fork.wait(60).result == "5 calls, cheap"
    assert fork.result().outputs["beside"] == "by hand"
    assert set(trace.steps().values()) == {1}
    assert run.record.replayed == 5
    assert run.status == "failed", "the original stays as it was"


def test_a_fork_of_a_thousand_tasks_does_again_only_what_came_of_the_edit(
    fleet: Any, client: Client, crew_of: Any
) -> None:
    """Each task reads the one before it, but for each hundredth, which reads nothing."""
    fleet.start("--concurrency", "1")
    run = client.submit(
        crew_of("""
        def link(i):
            def run(ctx):
                return f"{ctx.outputs[f't{i - 1}'].raw}." if i % 100 else f"from {i}"
            return run
        crew = Crew(tasks=[Task(name=f"t{i}", run=link(i)) for i in range(1000)])
    """)
    )
    assert run.wait(60).result == "from 900" + 99 * "."
    at = next(c for c in client.checkpoints(run.id, "main") if c.task == "t499")
    fork = run.fork(checkpoint=at.id, edits={"t450": "edited"})
    result = fork.wait(60)
    assert result.outputs["t499"] == "edited" + 49 * "."
    assert result.outputs["t449"] == run.result().outputs["t449"]
    assert did(fork) == dict.fromkeys([f"t{i}" for i in [*range(451, 500), *range(500, 1000)]], 1)
    # From the head, where all is done, it is the dependants alone
    fork = run.fork(edits={"t450": "edited"})
    fork.wait(60)
    assert did(fork) == dict.fromkeys([f"t{i}" for i in range(451, 500)], 1)
    assert fork.result().result == run.result().result
