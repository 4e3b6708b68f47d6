"""Where a task may be stopped: anywhere in its own code, in a call only by force, in a write never."""

import pytest

from runner.core.errors import ClaimLost, Interrupted, TimedOut
from runner.journal.cancellation.gate import Gate


def test_nothing_stops_until_it_is_asked():
    gate = Gate()
    gate.check()
    assert gate.stopping is None
    assert not gate.may_break_in(force=True)


def test_a_task_in_its_own_code_may_be_stopped():
    gate = Gate()
    gate.ask(Interrupted("drain"))
    assert gate.may_break_in(force=False)
    with pytest.raises(Interrupted, match="drain"):
        gate.check()


def test_a_call_is_broken_into_by_force_only():
    gate = Gate()
    with gate.call():
        assert gate.in_call
        gate.ask(Interrupted("drain"))
        assert not gate.may_break_in(force=False)
        assert gate.may_break_in(force=True)
    assert not gate.in_call
    assert gate.may_break_in(force=False)


def test_a_write_is_never_broken_into():
    gate = Gate()
    with gate.call(), gate.write():
        gate.ask(ClaimLost("gone"))
        assert not gate.may_break_in(force=True)
    assert gate.may_break_in(force=False)


def test_a_call_that_would_begin_after_the_stop_does_not():
    gate = Gate()
    gate.ask(TimedOut("slow"))
    with pytest.raises(TimedOut), gate.call():
        pytest.fail("it began")
    assert not gate.in_call


@pytest.mark.parametrize("raised", [ValueError, Interrupted])
def test_what_raises_inside_leaves_the_gate_as_it_was(raised):
    gate = Gate()
    with pytest.raises(raised), gate.call(), gate.write():
        raise raised
    gate.ask(Interrupted("drain"))
    assert gate.may_break_in(force=False)


def test_calls_side_by_side_all_count():
    gate = Gate()
    with gate.call():
        with gate.call():
            pass
        assert gate.in_call
    assert not gate.in_call


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
def test_the_first_reason_stands_but_a_polite_one_yields(asked, stands):
    gate = Gate()
    for stop in asked:
        gate.ask(stop)
    assert gate.stopping is asked[stands]


def test_it_may_be_asked_by_a_signal_handler_on_its_own_thread():
    """A handler runs between any two lines, also while the task's thread is inside the gate's own lock."""
    gate = Gate()
    with gate._lock:
        gate.ask(Interrupted("drain"))
        assert gate.may_break_in(force=False)
