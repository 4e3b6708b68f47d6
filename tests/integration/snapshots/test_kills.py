"""Crews that die while they write checkpoints, and go on from them."""

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

DRIVER = Path(__file__).parent / "killed_often.py"


@pytest.mark.timeout(600)  # a hundred processes, one after the other
@pytest.mark.parametrize(("kind", "lives"), [("checkpoints", 100), ("checkpoints.db", 25)])
def test_parallel_tasks_killed_and_resumed_pair_up_exactly_once(tmp_path, pairs_up, place, kind, lives):
    """Killed by SIGKILL right after a checkpoint or during the next: one start, one end for each task in the record."""
    place.location = str(tmp_path / kind)
    log = tmp_path / "paid"
    said = subprocess.run(
        [sys.executable, DRIVER, place.location, str(lives), log], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout == '"last of 7"\n'
    counted = pairs_up(place.last)
    names = ["first", *(f"side{i}" for i in range(6)), "last"]
    for name in names:
        assert counted["task_started", name] == counted["task_completed", name] == 1
        assert counted["task_failed", name] == 0
    assert counted["crew_kickoff_started", None] == counted["crew_kickoff_completed", None] == 1
    steps = sum(count for (kind, _), count in counted.items() if kind == "tool_usage_finished")
    assert steps == 2 + 6 * 60 + 2, "each step is in the record once"
    paid = Counter(log.read_text().splitlines())
    assert len(paid) == steps
    # One of a dying life may be paid and not kept, and at most one in each of the six tasks.
    assert sum(paid.values()) - steps <= 6 * lives


def test_a_signal_in_the_middle_of_many_writes_neither_hangs_nor_tears(program, place):
    """Locks are held nearly all the time, by threads that write: the handler must wait for none of them."""
    code = """
    import os, sys
    from runner import CheckpointConfig, Crew, Task

    def work(ctx):
        os.write(1, b"ready\\n")  # whole lines, whichever of the threads is first
        for i in range(10**6):
            ctx.step("a", int, i)

    crew = Crew(
        tasks=[Task(name=f"t{i}", run=work, async_execution=True) for i in range(4)],
        checkpoint=CheckpointConfig(
            location=sys.argv[1], on_events=["SIGTERM", "tool_usage_finished"], max_checkpoints=30
        ),
    )
    crew.kickoff()
    """
    chance = random.Random(3)
    for _ in range(8):
        before = {info.id for info in place.infos}
        process = program(code, place.location)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        for _ in range(chance.randint(1, 4)):
            newest = place.infos[-1:]
            while place.infos[-1:] == newest and process.poll() is None:
                pass
        process.terminate()
        assert process.wait(timeout=60) == -signal.SIGTERM
        # The other tasks go on while it is written, and write theirs.
        assert "SIGTERM" in [place.read(info)["trigger"] for info in place.infos if info.id not in before]
