"""Signals that trigger a checkpoint. (The sixth of the failures of `test_points`, and what lies beside it.)"""

import os
import signal
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from runner import CheckpointConfig, Crew, Task


def done(text: str) -> Any:
    return lambda ctx: text


SIGNALLED = """
import sys, time
from runner import CheckpointConfig, Crew, Task

def work(ctx):
    ctx.step("first", lambda: 1)
    print("ready", flush=True)
    {waits}

crew = Crew(
    tasks=[Task(name="quick", run=lambda ctx: "done"), Task(name="work", run=work)],
    checkpoint=CheckpointConfig(location=sys.argv[1], on_events=["{signal}"]),
)
{kickoff}
"""

THREAD = """
import threading
from runner.snapshots import signals_watched
thread = threading.Thread(target=crew.kickoff)
with signals_watched():
    thread.start()
    thread.join()
"""

HANDLED = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
crew.kickoff()
"""


BLOCKED = "sys.stdin.readline()"
COMPUTING = "end = time.monotonic() + 60\n    while time.monotonic() < end: pass"
PLAIN, AWAITED = "crew.kickoff()", "import asyncio; asyncio.run(crew.kickoff_async())"


@pytest.mark.parametrize(
    ("name", "waits", "kickoff"),
    [
        ("SIGTERM", BLOCKED, PLAIN),
        ("SIGTERM", COMPUTING, PLAIN),
        ("SIGTERM", BLOCKED, AWAITED),
        ("SIGTERM", "time.sleep(60)", THREAD),
        ("SIGHUP", "time.sleep(60)", PLAIN),
        ("SIGHUP", BLOCKED, AWAITED),
        ("SIGINT", BLOCKED, PLAIN),
        ("SIGINT", BLOCKED, AWAITED),
    ],
)
def test_point_6_a_signal_writes_a_checkpoint_and_the_exit_code_stays(program, place, name, waits, kickoff):
    process = program(SIGNALLED.format(waits=waits, signal=name, kickoff=kickoff), place.location)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    os.kill(process.pid, signal.Signals[name])
    if name == "SIGINT":  # KeyboardInterrupt waits for what is in flight, with checkpoints and without
        while not place.infos:
            assert process.poll() is None
        process.stdin.write("\n")
        process.stdin.flush()
    assert process.wait(timeout=60) == -signal.Signals[name], "the process's own"
    assert [data["trigger"] for data in place.all] == [name]
    quick, work = place.last["entities"][0]["tasks"]
    assert quick["output"] == {"raw": "done"}
    assert work["steps"] == {"first#1": "1"}, "what was done of the task in flight is in it"


def test_point_6_a_handler_that_was_there_before_has_the_last_word(program, place):
    process = program(SIGNALLED.format(waits="time.sleep(60)", signal="SIGTERM", kickoff=HANDLED), place.location)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 7
    assert len(place.infos) == 1


def test_point_6_a_second_signal_does_not_wait_for_a_write_that_hangs(program, place):
    code = """
    import os, sys, threading
    from runner import CheckpointConfig, Crew, JsonProvider, Task

    class Hangs(JsonProvider):
        def checkpoint(self, *args, **kwargs):
            os.write(1, b"hangs\\n")
            threading.Event().wait()

    def work(ctx):
        os.write(1, b"ready\\n")
        sys.stdin.readline()

    settings = CheckpointConfig(location=sys.argv[1], on_events=["SIGTERM"], provider=Hangs())
    Crew(tasks=[Task(name="work", run=work)], checkpoint=settings).kickoff()
    """
    process = program(code, place.location)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    process.terminate()
    assert process.stdout.readline() == "hangs\n"
    while process.poll() is None:  # the first may not have reached the main thread yet
        process.terminate()
    assert process.returncode == -signal.SIGTERM


def test_point_6_in_another_thread_without_handlers_it_is_said_once(place):
    events: Any = ["SIGTERM", "task_completed"]
    crew = Crew(
        tasks=[Task(name="a", run=done("x"))],
        checkpoint=CheckpointConfig(location=place.location, on_events=events),
    )
    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(1) as pool:
        warnings.simplefilter("always")
        pool.submit(crew.kickoff).result()
        pool.submit(crew.kickoff).result()
    [one] = caught
    assert str(one.message).startswith("SIGTERM will write no checkpoint: only the main thread can install a handler")
    assert len(place.infos) == 2


def test_point_6_handlers_go_with_the_kickoff(place):
    before = signal.getsignal(signal.SIGHUP)
    during = []
    events: Any = ["SIGHUP"]
    Crew(
        tasks=[Task(name="a", run=lambda ctx: during.append(signal.getsignal(signal.SIGHUP)))],
        checkpoint=CheckpointConfig(location=place.location, on_events=events),
    ).kickoff()
    assert during[0] is not before
    assert signal.getsignal(signal.SIGHUP) is before


def test_point_6_stopped_and_continued_it_writes_both_times_and_goes_on(program, place):
    code = """
    import sys
    from runner import CheckpointConfig, Crew, Task

    def work(ctx):
        print("ready", flush=True)
        return sys.stdin.readline().strip()

    crew = Crew(
        tasks=[Task(name="work", run=work)],
        checkpoint=CheckpointConfig(location=sys.argv[1], on_events=["SIGTSTP", "SIGCONT"]),
    )
    print(crew.kickoff())
    """
    process = program(code, place.location, launch=subprocess.Popen)
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    os.kill(process.pid, signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert os.WSTOPSIG(status) == signal.SIGTSTP
    assert [data["trigger"] for data in place.all] == ["SIGTSTP"]
    os.kill(process.pid, signal.SIGCONT)
    while len(place.infos) < 2:
        assert process.poll() is None
    assert process.communicate("the end\n", timeout=60)[0] == "the end\n"
    assert process.returncode == 0
    assert [data["trigger"] for data in place.all] == ["SIGTSTP", "SIGCONT"]


LATE = """
    import os, signal, sys, time
    from runner import CheckpointConfig, Crew, Task
    from runner.snapshots import signals

    class Live(list):
        def remove(self, live):
            if {seen_to}:
                os.kill(os.getpid(), signal.SIGTERM)
            super().remove(live)

    def leave(self, live, leave=signals._Watcher.leave):
        if not {seen_to}:
            os.kill(os.getpid(), signal.SIGTERM)
        leave(self, live)

    signals._Watcher.leave, signals._watcher._live = leave, Live()
    tasks = [Task(name="work", run=lambda ctx: "done")]
    crew = Crew(tasks=tasks, checkpoint=CheckpointConfig(location=sys.argv[1], on_events=["SIGTERM"]))
    sys.setswitchinterval(5)  # the thread that writes comes to nothing as long as this one does not wait
    crew.kickoff()
    time.sleep(60)
"""


@pytest.mark.parametrize("seen_to", [False, True], ids=["before all is seen to", "after"])
def test_point_6_a_signal_that_comes_as_a_kickoff_ends_is_not_lost(program, place, seen_to):
    process = program(LATE.format(seen_to=seen_to), place.location)
    assert process.wait(timeout=50) == -signal.SIGTERM, process.stderr.read()
    assert seen_to or len(place.infos) == 1
