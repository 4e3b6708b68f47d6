"""A crew whose tasks have timeouts, under profilers, coverage and debuggers: they go on to their end, and so does it.

Each in a process of its own: an interpreter that is left with its flag for raised exceptions up hangs in the first call
that is traced after that.
"""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ...support.soak import in_soak

CREW = """
    import threading, time
    from runner import Crew, Task
    from runner.core.errors import TaskTimeout

    def quick(ctx):
        return sum(i for i in range(2000))

    def busy(ctx):
        while True:
            time.sleep(0)

    def kickoffs():
        for _ in range(3):
            Crew(tasks=[Task(name="a", run=quick, timeout=60)]).kickoff()
            try:
                Crew(tasks=[Task(name="b", run=busy, timeout=0.05)]).kickoff()
                raise SystemExit("it was not stopped")
            except TaskTimeout:
                pass
        after()

    def after():
        return [str(i) for i in range(500)]
"""

UNDER = {
    "cProfile": """
        import cProfile, pstats
        profile = cProfile.Profile()
        profile.runcall(kickoffs)
        profile.runcall(kickoffs)
        assert any(name == "after" for _, _, name in pstats.Stats(profile).stats)
    """,
    "cProfile, afterwards": """
        import cProfile
        kickoffs()
        cProfile.Profile().runcall(after)
    """,
    "coverage": """
        import coverage
        cover = coverage.Coverage(data_file=None)
        cover.start()
        kickoffs()
        cover.stop()
        told = cover.get_data().lines(__file__)
        assert told and max(told) > min(told)
    """,
    "settrace": """
        import sys
        lines = []
        def hook(frame, event, arg):
            lines.append(frame.f_code.co_name)
            return hook
        sys.settrace(hook)
        threading.settrace(hook)
        kickoffs()
        assert sys.gettrace() is hook, "the hook was ended"
        sys.settrace(None)
        assert "after" in lines
    """,
    "setprofile": """
        import sys
        calls = []
        def hook(frame, event, arg):
            calls.append(frame.f_code.co_name)
        sys.setprofile(hook)
        threading.setprofile(hook)
        kickoffs()
        assert sys.getprofile() is hook, "the hook was ended"
        sys.setprofile(None)
        assert "after" in calls
    """,
    "a debugger": """
        import bdb
        class Debugger(bdb.Bdb):
            seen = 0
            def user_line(self, frame):
                self.seen += 1
                self.set_step()
        debugger = Debugger()
        debugger.runcall(kickoffs)
        assert debugger.seen > 500
    """,
}


def kept_of(ways: dict[str, str]) -> list[object]:
    """One way of each mechanism; the soak runs the others."""
    kept = "coverage", "setprofile"
    return [*kept, *in_soak(*(way for way in ways if way not in kept))]


@pytest.fixture
def end_of(tmp_path: Path, processes_are_forked: Any) -> Callable[[str], "subprocess.CompletedProcess[str]"]:
    """The end of a process of its own with this code, which has imported what it needs."""

    def run(code: str) -> "subprocess.CompletedProcess[str]":
        path = tmp_path / "traced.py"
        path.write_text(textwrap.dedent(code))
        words = [sys.executable, path]
        with processes_are_forked.popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                out, err = process.communicate(timeout=250)
            finally:
                process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return run


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", kept_of(UNDER))
def test_a_crew_and_what_comes_after_it_are_traced_to_their_end(what: str, end_of: Any) -> None:
    end = end_of(textwrap.dedent(CREW) + textwrap.dedent(UNDER[what]))
    assert end.returncode == 0, end.stderr[-2000:]


LOCKING = """
    import faulthandler, itertools, sys, threading
    from pathlib import Path
    from runner import Crew, Task
    from runner.core.errors import TaskTimeout

    lock, files, folder = threading.Lock(), itertools.count(), Path(__file__).parent

    def busy(ctx):
        while True:  # coverage takes its lock for each new file
            exec(compile("for i in range(200_000):\\n i += 1", folder / f"made_{next(files)}.py", "exec"), {})

    def kickoffs():
        for turn in range(20):
            faulthandler.dump_traceback_later(90, exit=True)
            try:
                Crew(tasks=[Task(name="a", run=busy, timeout=0.003 + turn % 17 / 10000)]).kickoff()
                raise SystemExit("it was not stopped")
            except TaskTimeout:
                pass

    def held():
        for _ in range(3):
            pass

    try:  # what it imports is not traced
        Crew(tasks=[Task(name="a", run=busy, timeout=0.05)]).kickoff()
    except TaskTimeout:
        pass
"""

LOCKING_HOOKS = {
    "coverage": """
        import coverage
        cover = coverage.Coverage(data_file=None, branch=True)
        cover.start()
        hook = sys.gettrace()
        kickoffs()
        assert sys.gettrace() is hook
        cover.stop()
    """,
    "settrace": """
        def hook(frame, event, arg):
            with lock:
                held()
            return hook
        threading.settrace(hook)
        sys.settrace(hook)
        kickoffs()
        assert sys.gettrace() is hook, "the hook was ended"
        sys.settrace(None)
    """,
    "setprofile": """
        def hook(frame, event, arg):
            with lock:
                held()
        threading.setprofile(hook)
        sys.setprofile(hook)
        kickoffs()
        assert sys.getprofile() is hook, "the hook was ended"
        sys.setprofile(None)
    """,
    "monitoring": """
        def hook(code, line):
            with lock:
                held()
        sys.monitoring.use_tool_id(3, "of a test")
        sys.monitoring.register_callback(3, sys.monitoring.events.LINE, hook)
        sys.monitoring.set_events(3, sys.monitoring.events.LINE)
        kickoffs()
        sys.monitoring.set_events(3, 0)
        assert sys.monitoring.register_callback(3, sys.monitoring.events.LINE, None) is hook
    """,
}


HOOKS_HERE = {what: code for what, code in LOCKING_HOOKS.items() if hasattr(sys, what) or what != "monitoring"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", kept_of(HOOKS_HERE))
def test_a_hook_that_takes_a_lock_is_not_broken_into(what: str, end_of: Any) -> None:
    end = end_of(textwrap.dedent(LOCKING) + textwrap.dedent(LOCKING_HOOKS[what]))
    assert end.returncode == 0, end.stderr[-2000:]


BLOCKED = """
    import faulthandler, socket, sys, threading, time
    from runner import Crew, Task
    from runner.core.errors import TaskTimeout

    faulthandler.dump_traceback_later(90, exit=True)
    ours, theirs = socket.socketpair()

    def answer():
        for _ in range(300):  # another thread that is observed, on which the call depends
            time.sleep(0.001)
        theirs.send(b"x")

    def waits(ctx):
        threading.Thread(target=answer).start()
        ours.recv(1)

    def kickoffs():
        for _ in range(8):
            try:
                Crew(tasks=[Task(name="a", run=waits, timeout=0.05)]).kickoff()
                raise SystemExit("it was not stopped")
            except TaskTimeout:
                pass

    lock = threading.Lock()

    def held():
        pass
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", kept_of(HOOKS_HERE))
def test_a_timeout_is_met_as_a_blocking_call_returns_under_a_hook(what: str, end_of: Any) -> None:
    """The interpreter's flag for raised exceptions is up meanwhile, and is all threads'."""
    end = end_of(textwrap.dedent(BLOCKED) + textwrap.dedent(LOCKING_HOOKS[what]))
    assert end.returncode == 0, end.stderr[-2000:]


def test_a_thread_in_code_of_coverage_is_not_broken_into(end_of: Any) -> None:
    """Its tracer is in C, and calls Python for each new file. One is made here, as theirs change."""
    code = """
        import coverage, sys, threading, time
        from runner.core.errors import Interrupted
        from runner.journal.cancellation.async_raise import InterruptibleSection

        cover = coverage.Coverage(data_file=None)
        cover.start()
        theirs = {"__name__": "coverage.made", "lock": threading.Lock()}
        exec("def look_at_file():\\n    with lock:\\n        pass", theirs)
        sections = []

        def work():
            sections.append(InterruptibleSection())
            theirs["look_at_file"]()
            sections[0].over()

        theirs["lock"].acquire()
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while sys._current_frames()[thread.ident].f_code.co_name != "look_at_file":
            time.sleep(0.001)
        assert not sections[0].break_in(Interrupted)
        theirs["lock"].release()
        thread.join()
        cover.stop()
    """
    end = end_of(code)
    assert end.returncode == 0, end.stderr[-2000:]


@pytest.mark.parametrize("hook", ["trace", "profile"])
def test_a_hook_that_is_broken_into_is_set_again(hook: str, end_of: Any) -> None:
    """Its first instruction may be the one at which a thread meets what was raised in it."""
    code = f"""
        import sys, threading
        from runner.core.errors import Interrupted
        from runner.journal.cancellation.async_raise import InterruptibleSection
        from runner.journal.cancellation import async_raise as breakin

        broken = False
        def hook(frame, event, arg):
            global broken
            if frame.f_code.co_name == "task" and not broken:
                broken = True
                section.told = True
                raise Interrupted
            return hook
        def task():
            pass
        sys.set{hook}(hook)
        section = InterruptibleSection()
        try:
            task()
            raise SystemExit("not raised")
        except Interrupted:
            assert sys.get{hook}() is None
        finally:
            section.over()
        assert sys.get{hook}() is hook
        sys.set{hook}(None)
    """
    end = end_of(code)
    assert end.returncode == 0, end.stderr[-2000:]


@pytest.mark.timeout(120)
def test_others_are_traced_while_one_that_was_broken_into_is_in_a_call(end_of: Any) -> None:
    code = """
        import cProfile, os, threading
        from runner.core.errors import Interrupted
        from runner.journal.cancellation.async_raise import InterruptibleSection

        sections, (there, here) = [], os.pipe()

        def work():
            section = InterruptibleSection()
            try:
                sections.append(section)
                os.read(there, 1)
            except Interrupted:
                print("broken into")
            finally:
                section.over()

        thread = threading.Thread(target=work)
        thread.start()
        while not (sections and sections[0].break_in(Interrupted)):
            pass
        cProfile.Profile().runcall(lambda: [str(i) for i in range(1000)])
        os.write(here, b"x")
        thread.join()
        cProfile.Profile().runcall(lambda: [str(i) for i in range(1000)])
    """
    end = end_of(code)
    assert (end.returncode, end.stdout) == (0, "broken into\n"), end.stderr[-2000:]


def test_a_thread_that_ends_as_it_is_broken_into_leaves_nothing_behind(end_of: Any) -> None:
    code = """
        import cProfile
        from runner.agents.concurrently import run_concurrently
        from runner.core.errors import Interrupted
        import threading, time

        def ends(n):
            end = time.monotonic() + n / 20000
            while time.monotonic() < end:
                pass

        class Stopped(Interrupted):
            deferrable = False

        def stops():
            raise Stopped("now")

        for turn in range(20):
            try:
                run_concurrently([stops, *[lambda n=n: ends(n) for n in range(6)]])
            except Interrupted:
                pass
        while threading.active_count() > 1:
            time.sleep(0.01)
        cProfile.Profile().runcall(lambda: [str(i) for i in range(1000)])
    """
    end = end_of(code)
    assert end.returncode == 0, end.stderr[-2000:]
