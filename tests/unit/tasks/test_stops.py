"""What a signal does to a process with many tasks, in which order."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from runner.core.errors import ClaimLost, Interrupted, TimedOut
from runner.core.jobs import Job
from runner.journal.cancellation.async_raise import InterruptibleSection
from runner.journal.cancellation.cancel_scope import CancelScope

stops = pytest.importorskip("runner.tasks.stops")


class Section:
    """A section of a task into which nothing breaks."""

    again, told = 60.0, False

    def __init__(self, *_: object) -> None: ...

    def in_critical_section(self) -> bool:
        return False

    def break_in(self, _: type[BaseException]) -> bool:
        return True

    def over(self) -> None: ...


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "InterruptibleSection", Section)
    monkeypatch.setattr(stops, "_later", lambda *_: None)


def claim_of(run: str, *triggers: str, task: str = "t") -> Any:
    return SimpleNamespace(job=Job(run, "main", task, 1), scope=SimpleNamespace(triggers=frozenset(triggers)))


class Flying(contextlib.ExitStack):
    """Tasks in flight, and what the store was asked."""

    def __init__(self, lost: Sequence[Any] = (), away: bool = False) -> None:
        super().__init__()
        self.marked: list[tuple[list[str], str, bool]] = []
        self.asked: list[int] = []
        self.lost, self.away = lost, away
        self.stops = stops.TaskStops(0.0, self.hold, self.mark, on_main_thread=False)

    def hold(self, claims: Sequence[Any]) -> list[bool]:
        self.asked.append(len(claims))
        return [claim not in self.lost for claim in claims]

    def mark(self, claims: Any, cause: str) -> None:
        self.marked.append(([claim.job.run_id for claim in claims], cause, self.stops.draining))
        if self.away:
            raise ConnectionError("away")


def test_a_process_that_drains_takes_nothing_more_before_it_asks_the_store_anything() -> None:
    # Given tasks of three runs, two of them of one run, and one that asked for no checkpoint at a signal
    flying, scopes = Flying(away=True), [CancelScope() for _ in range(4)]
    claims = [claim_of("a", "SIGTERM"), claim_of("a", "SIGTERM", task="u"), claim_of("b", "*"), claim_of("c", "other")]
    for scope, claim in zip(scopes, claims, strict=True):
        flying.enter_context(flying.stops.watching(scope, claim, None))
    # When it is to drain, while the store is away
    flying.stops.drain("SIGTERM")
    flying.stops.drain("SIGTERM")
    # Then the store was asked once, for the two runs that want it, and all tasks are asked to stop
    assert flying.marked == [(["a", "b"], "SIGTERM", True)]
    assert all(isinstance(scope.stopping, Interrupted) for scope in scopes)


def test_whose_claim_is_lost_is_asked_once_for_all() -> None:
    claims = [claim_of("a"), claim_of("b"), claim_of("c")]
    flying, scopes = Flying(lost=claims[1:2]), [CancelScope() for _ in range(3)]
    for scope, claim in zip(scopes, claims, strict=True):
        flying.enter_context(flying.stops.watching(scope, claim, None))
    flying.stops.recheck()
    assert flying.asked == [3]
    assert [type(scope.stopping) for scope in scopes] == [type(None), ClaimLost, type(None)]


def test_tasks_that_are_stopped_together_are_looked_at_again_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each of a hundred blocked calls had a timer of its own, each timer looked at all of them."""
    looks, flying = list[float](), Flying()
    monkeypatch.setattr(stops, "_later", lambda seconds, do, *_: looks.append(seconds) if do == again else None)
    monkeypatch.setattr(Section, "break_in", lambda *_: False)
    again = flying.stops._poke
    for n in range(10):
        task = flying.stops.watching(scope := CancelScope(), claim_of(str(n)), None)
        flying.enter_context(task)
        scope.ask(TimedOut.after(1))
        again()
    assert looks == [60.0]
    # One that is to be looked at sooner is
    task.section.again = 0.01
    again()
    again()
    assert looks == [60.0, 0.01]


@pytest.mark.parametrize("away", [False, True])
def test_a_process_that_has_a_message_ends_when_it_has_returned_that(
    away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    flying = Flying()
    monkeypatch.setattr(stops, "outage", SimpleNamespace(waiting=away))
    flying.stops.has_message = True
    if away:  # it cannot be returned; it is sent again, as one that is lost
        with pytest.raises(SystemExit):
            flying.stops._terminated(15, None)
        return
    flying.stops._terminated(15, None)
    assert flying.stops.draining
    assert flying.stops.leaving
    flying.stops.has_message = False
    with pytest.raises(SystemExit):
        flying.stops._terminated(15, None)


def test_what_stops_a_task_as_it_begins_or_ends_leaves_none_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop may come at any instruction: also in the midst of what takes the task out of those in flight."""
    flying = Flying()
    scope = CancelScope()
    with flying.stops.watching(scope, claim_of("r"), None):
        assert flying.stops._flying
    assert not flying.stops._flying

    comes = [Interrupted("in the midst of it")]

    def over(self: Section) -> None:
        if comes:
            raise comes.pop()

    monkeypatch.setattr(Section, "over", over)
    with pytest.raises(Interrupted, match="in the midst"), flying.stops.watching(scope, claim_of("r"), None):
        pass
    assert not comes
    assert not flying.stops._flying

    flying.stops.drain()
    with pytest.raises(Interrupted, match="draining"), flying.stops.watching(scope, claim_of("r"), None):
        raise AssertionError("it is not begun")
    assert not flying.stops._flying


def test_a_stop_that_comes_as_its_task_ends_is_not_raised_where_nothing_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the first instruction of what ends it, as a signal's handler and another thread see it."""
    sections, seen = [], []

    def look(frame: FrameType, *_: object) -> None:
        if frame.f_code is stops._InFlight.__exit__.__code__:
            seen.append(sections[0].in_critical_section())

    def section(may: Callable[[], bool], calls: CancelScope) -> InterruptibleSection:
        sections.append(InterruptibleSection(may, calls))
        return sections[0]

    monkeypatch.setattr(stops, "InterruptibleSection", section)
    before = sys.gettrace()
    with contextlib.suppress(Interrupted), Flying().stops.watching(CancelScope(), claim_of("a"), None):
        seen.append(sections[0].in_critical_section())
        sys.settrace(look)
    sys.settrace(before)
    assert seen == [False, True]
