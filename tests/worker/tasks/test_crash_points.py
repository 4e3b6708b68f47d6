"""A process is killed at each named point between two writes; the run completes, and the count is right."""

import signal
from pathlib import Path
from typing import Any, get_args

import pytest

from runner.client import Client
from runner.core.fault_points import CrashPoint

TASKS = """
    def flaky(ctx):
        trace(f"task flaky {ctx.attempt}")
        value = ctx.step("work", work, "flaky", 0, 0)
        if not os.path.exists(FAILED):
            open(FAILED, "w").close()
            raise RuntimeError("the first time")
        return value

    crew = Crew(tasks=[
        Task(name="a", run=steps("a", 3, 0.01)),
        Task(name="flaky", run=flaky, max_retries=2, retry_delay=0.05),
        Task(name="b", run=steps("b", 2, 0.01)),
    ])
"""

# What a kill at a point costs: how many steps are done twice, and how many are counted as in doubt.
COST: dict[str, tuple[int, int]] = {
    "job received, not claimed": (0, 0),
    "claimed, not begun": (0, 0),
    "step begun, not done": (0, 1),
    "step done, not recorded": (1, 1),
    "step recorded, task not ended": (0, 0),
    "task done, not committed": (0, 0),
    "task committed, job not ended": (0, 0),
    "next task claimed, not begun": (0, 0),
    "attempt failed, not recorded": (0, 0),
}
ELSEWHERE = {
    *("run created, nothing waited for", "forked, nothing waited for", "asked to stop, not handed back"),
    *("growth decided, not committed", "question put, not asked"),  # flows
    *(
        "model call noted, not sent",
        "model call sent, not answered",
        "model answered, not recorded",
        "model answer sent to the store, not acknowledged",
        "steps gathered, not written",
        "steps written, not told",
    ),  # test_model_calls.py
    "steps sent to the store, not acknowledged",  # test_maps.py
}


def test_every_point_is_tested() -> None:
    # Those of checkpoints: tests/integration/providers/test_provider_crashes.py
    points = {point for point in get_args(CrashPoint) if not point.startswith("checkpoint")}
    assert {*COST, *ELSEWHERE} == points


@pytest.mark.parametrize("point", COST)
@pytest.mark.parametrize("pool", ["prefork", "shared"])
def test_a_worker_dies_here(
    pool: str, point: str, fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, tmp_path: Path
) -> None:
    # Given a worker that is killed when it first comes to this point
    flag = tmp_path / "died"
    fleet.start("--concurrency", "1", "--pool", pool, RUNNER_CRASH_AT=f"{point}:{flag}")
    # When a run passes it
    handle = client.submit(crew_of(TASKS.replace("FAILED", repr(str(tmp_path / "failed")))))
    result = handle.wait(60)
    # Then it completes by itself, and what was recorded was not done again
    assert flag.exists()
    reconcile(client, handle)
    repeated, in_doubt = COST[point]
    assert trace.repeated() == repeated
    assert result.ledger["in_doubt"] == in_doubt
    assert result.ledger["paid"] == 6
    assert {key: result.outputs[key] for key in "ab"} == {"a": "0 1 2", "b": "0 1"}


def test_it_dies_while_it_hands_back(
    fleet: Any, client: Client, crew_of: Any, trace: Any, reconcile: Any, eventually: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    crew = crew_of('crew = Crew(tasks=[Task(name="a", run=steps("a", 8, 0.05, held_at=4))])')
    worker = fleet.start("--concurrency", "1", RUNNER_CRASH_AT=f"asked to stop, not handed back:{flag}")
    handle = client.submit(crew)
    eventually(lambda: trace.held("a"), why="the fourth step")
    worker.terminate()
    eventually(lambda: worker.process.poll() is not None, why="the worker ends")
    assert flag.exists()
    trace.let_go()
    fleet.start("--concurrency", "1")
    handle.wait(60)
    reconcile(client, handle)
    assert trace.repeated() == 0


def test_the_submitter_dies_when_the_run_is_created(
    fleet: Any, client: Client, crew_of: Any, reconcile: Any, tmp_path: Path
) -> None:
    flag = tmp_path / "died"
    crew = crew_of('crew = Crew(tasks=[Task(name="a", run=steps("a", 2, 0.01))])')
    submitted = fleet.runner("submit", str(crew), RUNNER_CRASH_AT=f"run created, nothing waited for:{flag}")
    assert submitted.returncode == -signal.SIGKILL
    fleet.start("--concurrency", "1")
    handle = client.run(client.runs()[0].id)
    handle.wait(60)
    reconcile(client, handle)
