"""A stop ends the wait for a blocking call of a task that shares its process."""

import pytest

from ...support.interpreters import ran

pytestmark = pytest.mark.slow

CODE = """
import threading, time
from runner.core.errors import ClaimLost, Interrupted
from runner.journal import blocking_calls
from runner.journal.cancellation.cancel_scope import CancelScope, asleep

held, out, raised, scope = threading.Event(), threading.Event(), [], CancelScope()

def call():
    out.set()
    assert held.wait(60)
    return "answered"

assert blocking_calls.run(lambda: "here", scope) == "here" and not asleep()
blocking_calls.use_threads()
assert blocking_calls.run(lambda: threading.current_thread().name, scope) == "blocking call"
try:
    blocking_calls.run(lambda: 1 / 0, scope)
except ZeroDivisionError:
    pass

def task():
    try:
        raised.append(blocking_calls.run(call, scope))
    except BaseException as error:
        raised.append(error)

def begun():
    out.clear()
    thread = threading.Thread(target=task)
    thread.start()
    assert out.wait(60)
    return thread

# a stop that may wait does, until its time is up
thread = begun()
scope.ask(Interrupted("draining"))
thread.join(0.1)
assert thread.is_alive() and not raised
scope.force()
thread.join(60)
assert isinstance(raised.pop(), Interrupted) and not thread.is_alive()
held.set()

# one that may not does not wait
held, scope = threading.Event(), CancelScope()
thread = begun()
scope.ask(ClaimLost("gone"))
thread.join(60)
assert isinstance(raised.pop(), ClaimLost) and not asleep()
held.set()

# what may wait gets the answer
held, scope = threading.Event(), CancelScope()
thread = begun()
scope.ask(Interrupted("draining"))
held.set()
thread.join(60)
assert raised == ["answered"]

# a sleep inside of a call, as between two tries, goes on while the call has time, and raises the stop when it has none
scope, began = CancelScope(), time.monotonic()
threading.Timer(0.01, scope.ask, [Interrupted("draining")]).start()
scope.sleep_in_call(0.2)
assert time.monotonic() - began >= 0.2 and scope.stopping
threading.Timer(0.01, scope.force).start()
try:
    scope.sleep_in_call(600)
except Interrupted:
    raised.clear()
assert not raised

# but not inside of a write, which waits for the store
with scope.write:
    scope.sleep_in_call(0.01)

# where the system has no more threads, it is done in the task's own
def refuse(*_):
    raise RuntimeError("can't start new thread")

threading.Thread.start, held = refuse, CancelScope()
assert blocking_calls.run(lambda: threading.current_thread().name, held) == "MainThread"
"""


def test_a_stop_ends_the_wait_for_a_call() -> None:
    ran("-c", CODE)
