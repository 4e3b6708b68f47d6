"""Forks of a process of which another thread holds a lock that the child would wait for. In a process of their own."""

import textwrap
from pathlib import Path

import pytest

from ...support.interpreters import started

pytestmark = pytest.mark.slow

BEGIN = """
    import faulthandler, logging, os, socket, ssl, sys, threading
    from runner.tasks import fork_safety
    faulthandler.dump_traceback_later(120, exit=True)
    sys.path.insert(0, os.getcwd())
    sys.modules["here"] = sys.modules["__main__"]
    within, forked, over = threading.Event(), threading.Event(), threading.Event()

    def slowly():
        within.set()
        forked.wait(SECONDS)
        over.set()
"""

HELD = {
    "an import": """
        def held(): import slow
        then = held
    """,
    "a line of the log": """
        class Slow(logging.StreamHandler):
            def emit(self, record): slowly() if not within.is_set() else None
        logging.getLogger().addHandler(Slow())
        def held(): logging.getLogger("x").warning("a line")
        then = held
    """,
    "a name that is resolved": """
        class Resolver:
            def getaddrinfo(self, *_): slowly(); return []
        socket._socket = Resolver()
        def held(): socket.getaddrinfo("localhost", 1)
        then = int
    """,
    "the beginning of TLS": """
        ours, theirs = socket.socketpair()
        tls = ssl.create_default_context()
        tls.check_hostname = False
        def end():
            theirs.recv(1)  # it has begun
            slowly()
            theirs.shutdown(socket.SHUT_RDWR)
        def held():
            threading.Thread(target=end, daemon=True).start()
            try: tls.wrap_socket(ours)
            except OSError: pass
        then = int
    """,
}
"""What another thread does, which takes its time while it holds a lock; and what the child does then."""

FIRST = """
    threading.Thread(target=held, daemon=True).start()
    within.wait()
"""

BETWEEN = """
    import time
    due = threading.Event()
    def begin():
        due.wait()
        held()
    def let_begin():
        due.set()
        end = time.monotonic() + 0.05  # ten times as long as a thread computes before another interrupts it
        while time.monotonic() < end: pass
    os.register_at_fork(before=let_begin)  # what is registered later is called before
    threading.Thread(target=begin, daemon=True).start()
"""
"""What runs when it has been looked whether it is held, and before the fork."""

END = """
    if not os.fork():
        if within.is_set() and not over.is_set():
            os._exit(3)
        then()
        os._exit(0)
    forked.set()
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def child_of(folder: Path, held: str, seconds: float, install: str, *, between: str = "", first: str = FIRST) -> int:
    """What a child ends with that is forked while it is held, or at another time: 0 if at another."""
    (folder / "slow.py").write_text("import here\nif not here.within.is_set(): here.slowly()\n")
    text = "\n".join([f"SECONDS = {seconds}", *map(textwrap.dedent, (BEGIN, HELD[held], between, install, first, END))])
    with started("-c", text, cwd=folder) as process:
        return process.wait(150)


@pytest.mark.parametrize("held", HELD)
def test_a_fork_waits_until_no_other_thread_holds_what_its_child_would_wait_for(tmp_path: Path, held: str) -> None:
    assert child_of(tmp_path, held, 0.3, "fork_safety.LONGEST = 100\nfork_safety.install()") == 0


@pytest.mark.parametrize("held", HELD)
def test_nothing_is_held_that_begins_between_the_look_and_the_fork(tmp_path: Path, held: str) -> None:
    assert child_of(tmp_path, held, 0.3, "fork_safety.install()", between=BETWEEN, first="") == 0


def test_a_line_of_the_log_waits_for_a_fork_that_lets_others_run(tmp_path: Path) -> None:
    """What another library does before a fork may take its time."""
    waits = BETWEEN.replace("while time.monotonic() < end: pass", "time.sleep(0.1)")
    assert child_of(tmp_path, "a line of the log", 0.3, "fork_safety.install()", between=waits, first="") == 0


def test_it_does_not_wait_for_long_nor_does_one_of_a_process_that_was_not_asked_to(tmp_path: Path) -> None:
    assert child_of(tmp_path, "a name that is resolved", 100, "fork_safety.LONGEST = 0.05\nfork_safety.install()") == 3
    assert child_of(tmp_path, "a name that is resolved", 100, "") == 3
