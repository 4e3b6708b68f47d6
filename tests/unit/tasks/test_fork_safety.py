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

END = """
    threading.Thread(target=held, daemon=True).start()
    within.wait()
    if not os.fork():
        if not over.is_set():
            os._exit(3)
        then()
        os._exit(0)
    forked.set()
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def child_of(folder: Path, held: str, seconds: float, install: str) -> int:
    """What a child ends with that is forked while it is held, or afterwards: 0 if afterwards."""
    (folder / "slow.py").write_text("import here\nif not here.within.is_set(): here.slowly()\n")
    text = "\n".join(
        [f"SECONDS = {seconds}", *map(textwrap.dedent, (BEGIN, HELD[held])), install, textwrap.dedent(END)]
    )
    with started("-c", text, cwd=folder) as process:
        return process.wait(150)


@pytest.mark.parametrize("held", HELD)
def test_a_fork_waits_until_no_other_thread_holds_what_its_child_would_wait_for(tmp_path: Path, held: str) -> None:
    assert child_of(tmp_path, held, 0.3, "fork_safety.LONGEST = 100\nfork_safety.install()") == 0


def test_it_does_not_wait_for_long_nor_does_one_of_a_process_that_was_not_asked_to(tmp_path: Path) -> None:
    assert child_of(tmp_path, "a name that is resolved", 100, "fork_safety.LONGEST = 0.05\nfork_safety.install()") == 3
    assert child_of(tmp_path, "a name that is resolved", 100, "") == 3
