"""Whoever waits for threads or servers sleeps until there is something, and is woken where it is to stop."""

import concurrent.futures
import sys
import threading
from collections.abc import Callable

import pytest

from runner.agents.concurrently import run_concurrently
from runner.core.errors import Interrupted
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import Wakeup

from ...support.later import Later

mcp = Later("runner.agents.mcp")


def beside(function: Callable[[], object]) -> object:
    """A function beside another one: what is waited for in threads."""
    return run_concurrently([function, lambda: None])[0]


def asked_for(function: Callable[[], object]) -> object:
    """A function that somebody else calls: what an MCP server does."""
    future: concurrent.futures.Future[object] = concurrent.futures.Future()
    threading.Thread(target=lambda: future.set_result(function()), daemon=True).start()
    return mcp.connection._patiently(future, 60)


@pytest.fixture(params=[beside, asked_for])
def wait_for(request: pytest.FixtureRequest) -> Callable[[Callable[[], object]], object]:
    assert mcp.connection  # it is imported before anybody waits
    return request.param


def test_a_wait_of_a_second_wakes_up_for_what_it_waits_for(wait_for):
    slept = 0

    def count(frame: object, event: str, function: object) -> None:
        nonlocal slept
        slept += event == "c_call" and getattr(function, "__name__", "") in ("acquire", "sleep")

    sys.setprofile(count)
    try:
        assert wait_for(lambda: threading.Event().wait(1)) is False
    finally:
        sys.setprofile(None)
    assert slept < 18, slept


def test_a_stop_reaches_who_waits_for_what_never_comes(wait_for, eventually):
    never, waiting, ended = threading.Event(), threading.Event(), []
    sections: list[InterruptibleSection] = []

    def work() -> None:
        section = InterruptibleSection()
        sections.append(section)
        try:
            wait_for(lambda: waiting.set() or never.wait(60))
        except Interrupted:
            ended.append("stopped")
        section.over()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert waiting.wait(30)
    eventually(lambda: sections[0].break_in(Interrupted), why="it is at a place where it may be broken into")
    thread.join(30)
    never.set()
    assert ended == ["stopped"]


def test_no_answer_in_time_is_an_error():
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        mcp.connection._patiently(concurrent.futures.Future(), 0.01)


def test_what_woke_before_the_wait_ends_it():
    with Wakeup() as outer:
        outer.wake()
        outer.wake()
        with Wakeup() as inner:
            assert not inner.wait(0)
        assert outer.wait(60)
        assert not outer.wait(0)
