"""Where a task may be stopped: anywhere in its own code, in a call only by force, in a write never."""

import pytest

from runner.core.errors import ClaimLost, Interrupted, TimedOut
from runner.journal.cancellation.cancel_scope import CancelScope


def test_nothing_stops_until_it_is_asked():
    cancel_scope = CancelScope()
    cancel_scope.check()
    assert cancel_scope.stopping is None
    assert not cancel_scope.interruptible(force=True)


def test_a_task_in_its_own_code_may_be_stopped():
    cancel_scope = CancelScope()
    cancel_scope.ask(Interrupted("drain"))
    assert cancel_scope.interruptible(force=False)
    with pytest.raises(Interrupted, match="drain"):
        cancel_scope.check()


def test_a_call_is_broken_into_by_force_only():
    cancel_scope = CancelScope()
    with cancel_scope.call:
        assert cancel_scope.in_call
        cancel_scope.ask(Interrupted("drain"))
        assert not cancel_scope.interruptible(force=False)
        assert cancel_scope.interruptible(force=True)
    assert not cancel_scope.in_call
    assert cancel_scope.interruptible(force=False)


def test_a_write_is_never_broken_into():
    cancel_scope = CancelScope()
    with cancel_scope.call, cancel_scope.write:
        cancel_scope.ask(ClaimLost("gone"))
        assert not cancel_scope.interruptible(force=True)
    assert cancel_scope.interruptible(force=False)


def test_a_call_that_would_begin_after_the_stop_does_not():
    cancel_scope = CancelScope()
    cancel_scope.ask(TimedOut("slow"))
    with pytest.raises(TimedOut), cancel_scope.call:
        pytest.fail("it began")
    assert not cancel_scope.in_call


@pytest.mark.parametrize("raised", [ValueError, Interrupted])
def test_what_raises_inside_leaves_the_gate_as_it_was(raised):
    cancel_scope = CancelScope()
    with pytest.raises(raised), cancel_scope.call, cancel_scope.write:
        raise raised
    cancel_scope.ask(Interrupted("drain"))
    assert cancel_scope.interruptible(force=False)


def test_calls_side_by_side_all_count():
    cancel_scope = CancelScope()
    with cancel_scope.call:
        with cancel_scope.call:
            pass
        assert cancel_scope.in_call
    assert not cancel_scope.in_call


@pytest.mark.parametrize(
    ("asked", "stands"),
    [
        ([Interrupted("a"), Interrupted("b")], 0),
        ([Interrupted("a"), ClaimLost("b")], 1),
        ([ClaimLost("a"), Interrupted("b")], 0),
        ([Interrupted("a"), TimedOut("b")], 1),
        ([TimedOut("a"), Interrupted("b")], 0),
        ([TimedOut("a"), ClaimLost("b")], 1),
    ],
)
def test_the_first_reason_stands_but_a_deferrable_one_yields(asked, stands):
    cancel_scope = CancelScope()
    for stop in asked:
        cancel_scope.ask(stop)
    assert cancel_scope.stopping is asked[stands]


def test_it_may_be_asked_by_a_signal_handler_on_its_own_thread():
    """A handler runs between any two lines, also while the task's thread is inside the scope's own lock."""
    cancel_scope = CancelScope()
    with cancel_scope._lock:
        cancel_scope.ask(Interrupted("drain"))
        assert cancel_scope.interruptible(force=False)
