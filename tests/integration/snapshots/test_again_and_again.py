"""One crew kicked off again and again in one process: what it leaves is bounded."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from runner import BaseProvider, CheckpointConfig, Crew, JsonProvider, SqliteProvider, Task
from runner.flows import Flow, listen, start

from ...support.soak import in_soak

PLACES = {"json": (JsonProvider, "cps"), "sqlite": (SqliteProvider, "cps.db")}


@pytest.fixture(params=PLACES)
def place(request: Any, tmp_path: Path) -> tuple[BaseProvider, str]:
    kind, name = PLACES[request.param]
    return kind(), str(tmp_path / name)


def crew_of(n: int, provider: BaseProvider, location: str, **more: Any) -> Crew:
    tasks = [Task(name=f"t{i}", run=lambda ctx: "done") for i in range(n)]
    return Crew(tasks=tasks, checkpoint=CheckpointConfig(provider=provider, location=location, **more))


@pytest.mark.parametrize("tasks", [1, 3, *in_soak(2, 4)])
def test_its_finished_lines_count_with_the_new_one(tasks: int, place: tuple[BaseProvider, str]) -> None:
    provider, location = place
    crew = crew_of(tasks, provider, location, max_checkpoints=3)
    for _ in range(20):
        crew.kickoff()
        assert len(provider.checkpoints(location)) <= 3
    kept = provider.checkpoints(location)
    assert len(kept) == 3
    # the newest of all, and the head of the last line is one to go on from
    assert crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=kept[-1].location)).raw == "done"


def test_what_a_failed_run_left_can_be_gone_on_from_until_newer_ones_fill_the_bound(
    place: tuple[BaseProvider, str],
) -> None:
    provider, location = place
    crew = crew_of(3, provider, location, max_checkpoints=2)
    crew.tasks[2].run = lambda ctx: 1 / 0
    with pytest.raises(ZeroDivisionError):
        crew.kickoff()
    failed = [info.id for info in provider.checkpoints(location)]
    assert len(failed) == 2
    crew_of(1, provider, location, max_checkpoints=2).kickoff()
    left = provider.checkpoints(location)
    assert left[0].id == failed[-1]
    crew.tasks[2].run = lambda ctx: "done"
    assert crew.kickoff(from_checkpoint=CheckpointConfig(restore_from=left[0].location)).raw == "done"
    for _ in range(3):
        crew.kickoff()
        assert len(provider.checkpoints(location)) == 2


def test_a_flow(place: tuple[BaseProvider, str]) -> None:
    provider, location = place

    class Two(Flow):
        @start()
        def one(self) -> int:
            return 1

        @listen(one)
        def two(self) -> int:
            return 2

    flow = Two(
        checkpoint=CheckpointConfig(
            provider=provider, location=location, max_checkpoints=2, on_events=["method_execution_finished"]
        )
    )
    for _ in range(5):
        flow.kickoff()
    assert len(provider.checkpoints(location)) == 2


PROGRAM = """
    import sys, time
    from runner import CheckpointConfig, Crew, Task
    def step(i):
        print("paid", i, flush=True)
        sys.stdin.read()  # until the signal is sent
        time.sleep(0.2)
        return i
    def run(ctx):
        return str([ctx.step("s", step, i) for i in range(20)])
    Crew(tasks=[Task(name="t", run=run)]).kickoff()
"""


def test_after_ctrl_c_nothing_more_is_paid_for(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "paid 0\n"
    os.kill(process.pid, signal.SIGINT)
    rest, said = process.communicate(timeout=60)
    assert rest.count("paid") <= 1  # one may have begun before
    assert "KeyboardInterrupt" in said
    assert process.returncode == -signal.SIGINT


HELD = """
    import sys, time
    from runner import CheckpointConfig, Crew, JsonProvider, Task
    class Slow(JsonProvider):
        def checkpoint(self, data, location, **more):
            print("writing", flush=True)
            sys.stdin.readline()
            return super().checkpoint(data, location, **more)
    def run(ctx):
        print("in", flush=True)
        time.sleep(60)
    config = CheckpointConfig(provider=Slow(), location=sys.argv[1], on_events=["SIGTERM"])
    Crew(tasks=[Task(name="t", run=run)], checkpoint=config).kickoff()
"""


def test_a_second_signal_waits_for_the_first_ones_checkpoint(tmp_path: Path) -> None:
    """A process and its group are often both told."""
    program, location = tmp_path / "program.py", tmp_path / "cps"
    program.write_text(textwrap.dedent(HELD))
    process = subprocess.Popen(
        [sys.executable, program, location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    process.terminate()
    assert process.stdout.readline() == "writing\n"
    for _ in range(3):
        process.terminate()
    process.communicate("\n", timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert len(list(location.glob("main/*.json"))) == 1
