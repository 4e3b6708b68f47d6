"""How a process takes jobs of others, as long as it may."""

import pytest

from runner.bundles import thread_directory

from ...support.interpreters import ran

pytestmark = pytest.mark.slow

CODE = """
import os, queue, threading, time
from types import SimpleNamespace

os.environ.update(RUNNER_WORKER_ID=f"w-{os.getpid()}", RUNNER_SHARED="3")
from runner.core.errors import Interrupted
from runner.core.jobs import Job
from runner.engine.sharing import code_of
from runner.tasks import shared_process

shared_process.ACTIVE = 10
shared_process.share()
began, done, drained = [], threading.Semaphore(0), []
may_end = threading.Event()

def do(job):
    began.append((job, shared_process.thread_number(), os.getcwd()))
    os.chdir("/usr")
    done.release()
    assert may_end.wait(60)

os.chdir("/")
process = shared_process.SharedProcess(do, lambda: drained.append(1), lambda: None)
claim = SimpleNamespace(bundle="b", module="m", attr="a", adapter="none", standin="", job=Job("r", "main", "t", 1))
code, jobs = code_of("b", "m", "a", "none"), [Job("r", "main", f"t{n}", 1) for n in range(6)]

# nobody is there, then nobody of this code
assert not any(any(code) for code, *_ in shared_process._all()) and not shared_process.delegate(jobs[0], code)
assert process._may_open(claim)
process._open(claim, None)
assert process.is_open and any(any(code) for code, *_ in shared_process._all())
assert not shared_process.delegate(jobs[0], code_of("b", "m", "other", "none"))

# as many as there may be, each in a thread with a working directory of its own
assert [shared_process.delegate(job, code) for job in jobs[:4]] == [True, True, True, False]
for _ in range(3):
    assert done.acquire(timeout=60)
assert sorted(began, key=lambda one: one[1]) == [(job, thread, "/") for thread, job in enumerate(jobs[:3])], began
assert os.getcwd() == "/"

# where those that are there do not wait, and another core is free, another process is to do it
shared_process.ACTIVE, shared_process.capacity.processes = 1, lambda: 3
assert not shared_process.delegate(jobs[3], code)
shared_process.ACTIVE = 10

# where there is no thread for it, it is done where it is; a later one is taken
class NoThread(threading.Thread):
    def start(self):
        raise RuntimeError("can't start new thread")

def no_directory():
    raise OSError("a thread cannot have one")

shared_process.capacity.shared, thread, directory = lambda: 4, threading.Thread, shared_process.thread_directory.unshare
threading.Thread = NoThread
assert not shared_process.delegate(jobs[3], code)
threading.Thread, shared_process.thread_directory.unshare = thread, no_directory
assert not shared_process.delegate(jobs[3], code)
shared_process.thread_directory.unshare = directory
assert shared_process.delegate(jobs[3], code) and done.acquire(timeout=60)

# what another one of the worker has counts
shared_process.capacity.shared = lambda: 8
shared_process._write(3, shared_process._NO_CODE, 1, 4)
assert not shared_process.delegate(jobs[4], code)
shared_process.forget(1)
assert not shared_process._all()[3][2]

# those that offer one while it is busy all wait for its answer, and none for that of another
shared_process.ACTIVE, shared_process.capacity.processes = 0, lambda: 1
took = queue.SimpleQueue()
def offer():
    took.put(shared_process.delegate(jobs[4], code))
threads = [threading.Thread(target=offer) for _ in range(3)]
for thread in threads:
    thread.start()
while shared_process.offered() < 3:  # the caller ends this process if that never comes
    time.sleep(0.001)
assert took.empty()
shared_process.ACTIVE = 10
assert [took.get(timeout=60) for _ in range(3)] == [True] * 3
for _ in range(3):
    assert done.acquire(timeout=60)
while shared_process.offered():
    time.sleep(0.001)

# each for so long at most; one whose child has died meanwhile holds up nobody
shared_process.ACTIVE, shared_process.PATIENCE = 0, 0.2
for thread in (threads := [threading.Thread(target=offer) for _ in range(3)]):
    thread.start()
assert [took.get(timeout=60) for _ in range(3)] == [False] * 3
shared_process.ACTIVE, shared_process.PATIENCE = 10, 30.0

# a task in its last attempt is not beside others: it may be what ends the process
assert process.may_share_process(Job("r", "main", "t", 4)) and not process.may_share_process(Job("r", "main", "t", 5))

# a crew that turns out to be another one ends that; if the process was changed, all tasks are handed back
def refused(*_):
    raise Interrupted("no")

shared_process.sharing.check = refused
for changed in (False, True):
    shared_process.adapters.is_unchanged = lambda name: not changed
    try:
        process.read(claim, None, lambda: None)
    except Interrupted:
        pass
    assert drained == [1] * changed
assert not any(any(code) for code, *_ in shared_process._all()) and not shared_process.delegate(jobs[4], code)

# its place, by which its tasks have their pages, is its own until the last of them is done
other = shared_process.SharedProcess(do, lambda: None, lambda: None)
other._open(claim, None)
assert (process.place, other.place) == (0, 1)

# and the process ends with the last of them
waits = threading.Thread(target=process.wait_until_empty)
waits.start()
waits.join(0.05)
assert waits.is_alive()
may_end.set()
waits.join(60)
assert not waits.is_alive() and len(began) == 7 and not shared_process._all()[0][1]

# who was killed has said nothing: its worker does
shared_process.forget(os.getpid())
assert not any(any(code) for code, *_ in shared_process._all())
"""


@pytest.mark.skipif(not thread_directory.is_supported(), reason="the system does not let a thread have a directory")
def test_a_process_takes_jobs_of_its_code_while_it_has_room_and_ends_with_the_last() -> None:
    ran("-c", CODE)
