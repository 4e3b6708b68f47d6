"""Crews that die while they write checkpoints, and go on from them."""

import random
import signal

import pytest

from ...support.soak import in_soak


@pytest.mark.parametrize(("kind", "lives", "each"), [("checkpoints", 12, 12), *in_soak(("checkpoints.db", 6, 6))])
def test_parallel_tasks_killed_and_resumed_pair_up_exactly_once(kill_often, kind, lives, each):
    """One start and one end for each task in the record; tests/soak has a hundred lives."""
    kill_often(kind, lives, each)


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
    for _ in range(4):
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
