"""A crew whose tasks have timeouts, under profilers, coverage and debuggers: they go on to their end, and so does it.

Each in a process of its own: an interpreter that is left with its flag for raised exceptions up hangs in the first call
that is traced after that.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CREW = """
    import threading, time
    from runner import Crew, Task
    from runner.errors import TaskTimeout

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


def end_of(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    path = folder / "traced.py"
    path.write_text(textwrap.dedent(code))
    return subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", UNDER)
def test_a_crew_and_what_comes_after_it_are_traced_to_their_end(what: str, tmp_path: Path) -> None:
    end = end_of(textwrap.dedent(CREW) + textwrap.dedent(UNDER[what]), tmp_path)
    assert end.returncode == 0, end.stderr[-2000:]


@pytest.mark.timeout(120)
def test_others_are_traced_while_one_that_was_broken_into_is_in_a_call(tmp_path: Path) -> None:
    code = """
        import cProfile, os, threading
        from runner.errors import Interrupted
        from runner.stopping.breakin import Span

        spans, (there, here) = [], os.pipe()

        def work():
            span = Span()
            try:
                spans.append(span)
                os.read(there, 1)
            except Interrupted:
                print("broken into")
            finally:
                span.over()

        thread = threading.Thread(target=work)
        thread.start()
        while not (spans and spans[0].break_in(Interrupted)):
            pass
        cProfile.Profile().runcall(lambda: [str(i) for i in range(1000)])
        os.write(here, b"x")
        thread.join()
        cProfile.Profile().runcall(lambda: [str(i) for i in range(1000)])
    """
    end = end_of(code, tmp_path)
    assert (end.returncode, end.stdout) == (0, "broken into\n"), end.stderr[-2000:]


def test_a_thread_that_ends_as_it_is_broken_into_leaves_nothing_behind(tmp_path: Path) -> None:
    code = """
        import cProfile
        from runner.agents.beside import side_by_side
        from runner.errors import Interrupted
        import threading, time

        def ends(n):
            end = time.monotonic() + n / 20000
            while time.monotonic() < end:
                pass

        class Stopped(Interrupted):
            polite = False

        def stops():
            raise Stopped("now")

        for turn in range(20):
            try:
                side_by_side([stops, *[lambda n=n: ends(n) for n in range(6)]])
            except Interrupted:
                pass
        while threading.active_count() > 1:
            time.sleep(0.01)
        cProfile.Profile().runcall(lambda: [str(i) for i in range(1000)])
    """
    end = end_of(code, tmp_path)
    assert end.returncode == 0, end.stderr[-2000:]
