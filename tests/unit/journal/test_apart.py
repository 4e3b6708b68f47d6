"""A blocking call of a task that has a thread beside others: a stop ends the wait for it, wherever that is."""

import subprocess
import sys

CODE = """
import threading
from runner.core.errors import ClaimLost, Interrupted
from runner.journal import apart
from runner.journal.cancellation.cancel_scope import CancelScope

held, out, raised, scope = threading.Event(), threading.Event(), [], CancelScope()

def call():
    out.set()
    assert held.wait(60)
    return "answered"

assert apart.do(lambda: "here", scope) == "here" and not apart.waiting
apart.begin()
assert apart.do(lambda: threading.current_thread().name, scope) == "of a task: call"
try:
    apart.do(lambda: 1 / 0, scope)
except ZeroDivisionError:
    pass

def task():
    try:
        raised.append(apart.do(call, scope))
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
assert isinstance(raised.pop(), ClaimLost) and not apart.waiting
held.set()

# what may wait gets the answer
held, scope = threading.Event(), CancelScope()
thread = begun()
scope.ask(Interrupted("draining"))
held.set()
thread.join(60)
assert raised == ["answered"]

# a sleep inside of a call ends when the task is to stop, and raises it if the call has no time
scope = CancelScope()
scope.sleep_in_call(0.01)
threading.Timer(0.05, scope.ask, [Interrupted("draining")]).start()
scope.sleep_in_call(600)
scope.force()
try:
    scope.sleep_in_call(600)
except Interrupted:
    raised.clear()
assert not raised
"""


def test_a_stop_ends_the_wait_for_a_call() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
