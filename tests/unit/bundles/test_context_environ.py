"""Environment variables, and a working directory, that are one task's in a process that does several."""

from pathlib import Path

import pytest

from runner.bundles import thread_directory

from ...support.interpreters import ran

pytestmark = pytest.mark.slow

ENVIRON = """
import contextvars, os
from pathlib import Path
from runner.bundles import context_environ

os.environ.update(BOTH="process", HOME="/process")
context_environ.install()

def task():
    context_environ.set_variables(BOTH="task", OWN="1", HOME="/task")
    assert (os.environ["BOTH"], os.getenv("OWN"), os.environb[b"OWN"]) == ("task", "1", b"1")
    assert (str(Path.home()), os.path.expanduser("~/a")) == ("/task", "/task/a")
    assert dict(os.environ)["OWN"] == "1" and list(os.environ).count("BOTH") == 1 and "OWN" in os.environ
    assert len(os.environ) == len(dict(os.environ))
    os.environ["SET"] = "by a task"
    assert "SET" in os.environ
    of_process = context_environ.process_variables()
    assert of_process[b"BOTH"] == b"process" and b"OWN" not in of_process

contextvars.copy_context().run(task)
assert (os.environ["BOTH"], os.environ.get("OWN"), os.environ["SET"]) == ("process", None, "by a task")
del os.environ["SET"]
assert "SET" not in os.environ and dict(os.environ)["HOME"] == "/process"
"""

DIRECTORY = """
import os, threading
from runner.bundles import thread_directory

def of_a_thread():
    thread_directory.unshare()
    os.chdir("/usr")
    inner = threading.Thread(target=lambda: seen.append(os.getcwd()))
    inner.start()
    inner.join()

seen = []
os.chdir("/")
thread = threading.Thread(target=of_a_thread)
thread.start()
thread.join()
assert (seen, os.getcwd()) == (["/usr"], "/"), (seen, os.getcwd())
"""


def test_a_context_has_its_own_variables_and_the_process_keeps_its() -> None:
    ran("-c", ENVIRON)


@pytest.mark.skipif(not thread_directory.is_supported(), reason="the system does not let a thread have one")
def test_a_thread_and_those_it_begins_have_a_working_directory_of_their_own() -> None:
    before = Path.cwd()
    ran("-c", DIRECTORY)
    assert Path.cwd() == before
