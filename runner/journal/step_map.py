"""Concurrent durable steps: several results, and the steps that begin next, are stored in one write.

Each round stores the results since the last round, and notes as many new steps as there is room for; only then do these
begin. So at most ``at_once`` are ever in flight, and a kill leaves at most those in doubt. Steps that end while a round
is stored are part of the next round: the busier the map, the larger the writes.

If the task is stopped, the results that are there are stored first. Nothing interrupts a call that blocks a thread:
those that are out then have two seconds to end, and to be stored, too. The others are in doubt, and a line says so.

Of steps on threads that are over before the next look, half are held back: they are made while the store has the
results of the other half.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from functools import partial
from typing import Any, Literal

from runner.core import fault_points, waiting
from runner.core.clock import SYSTEM
from runner.core.errors import ClaimLost, InputRequired, Interrupted, Stop, first_line
from runner.core.ledger import NO_TOKENS, STEP
from runner.journal import steps
from runner.journal.cancellation.calls_in_flight import RETURNING, awaited
from runner.journal.journal import LOOK, RAISED, Journal
from runner.journal.map_threads import Kept, MapThreads
from runner.journal.recorder import DoneStep, StepObserver
from runner.journal.steps import Frame, current_step

log = logging.getLogger(__name__)

OnError = Literal["first", "all", "collect"]

PATIENT = (Interrupted, InputRequired)
"""Stops that leave the other steps under way the time to end, and to be recorded."""

FEW = 8  #: so few are not split into halves
SOON = 0.002  #: seconds within which others are to end while some are held back

NAMED = 3  #: so many of the items that raised are named by the error


def _nothing() -> None:
    """There is nothing to be stored."""


class _Step(Frame):
    """One step: its index in the results, its item, and its result."""

    # Of the class, as `__init__` would be one more call in each step.
    index: int = 0
    item: Any = None
    watch: StepObserver | None = None
    mark: int = 0
    value: Any = None
    text: str = ""
    error: BaseException | None = None


class StepMap:
    """The steps ``fn(item)`` for each item, identified like those of `Journal.step`; the results in the items' order.

    Items are read as there is room for them. ``on_error``: ``first`` begins no more steps after an error, and raises
    it; ``all`` makes all steps, then raises an `ExceptionGroup`; ``collect`` returns errors in place of results.
    ``watch`` creates the observer of a step, ``report`` is called with the number of finished steps and the total, if
    known.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        fn: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        at_once: int,
        on_error: OnError = "first",
        watch: Callable[[], StepObserver] | None = None,
        report: Callable[[int, int | None], object] = lambda *_: None,
    ) -> None:
        self._journal, self._name, self._fn, self._at_once = journal, name, fn, at_once
        self._on_error, self._watch, self._report = on_error, watch, report
        self._type = steps.type_of_result(fn)
        self._every = len(items) if isinstance(items, Sized) else None
        self._items = enumerate(items)
        self._outer = current_step.get()
        self._errors: dict[int, BaseException] = {}
        self._stop: BaseException | None = None
        self._broke: BaseException | None = None  # what the items raised
        self._running = self._ended = 0
        self._results: list[Any] = []
        self._done: deque[_Step] = deque()
        self._waits = False  # for the first step that ends; those that follow it need not wake this thread

    def run(self) -> list[Any]:
        """Make the steps on threads, each in a copy of this context."""
        scope = self._journal.cancel_scope
        with scope.call, scope.waking() as self._woken, MapThreads(self._do, self._at_once, scope) as threads:
            try:
                self._run(threads)
            except Stop as stop:
                self._keep_done(stop, threads)
                raise
        return self._outcome()

    def _run(self, threads: MapThreads) -> None:
        begun, held = self._round(()), list[_Step]()
        while self._running:
            self._report_begun(begun)
            threads.begin(begun)
            begun = []
            self._waits = True
            if not self._done and not self._woken.wait(SOON if held else None) and not self._done:
                begun, held = held, []  # the others take their time
                continue
            self._waits = False
            self._look_for_stop()
            if (ended := self._take_done()) or (held and self._is_over()):
                acknowledged = self._send_round(ended, held)
                if held:
                    self._report_begun(held)
                    threads.begin(held)
                    held = acknowledged()
                else:
                    were_quick = self._is_posted and self._running == len(self._begun)
                    begun = acknowledged()
                    if were_quick and len(begun) >= 2 * FEW:
                        held = begun[len(begun) // 2 :]
                        del begun[len(begun) // 2 :]

    async def arun(self) -> list[Any]:
        """The same for an async function: each step is a task of the running event loop."""
        scope, loop, under_way = self._journal.cancel_scope, asyncio.get_running_loop(), set[asyncio.Task[None]]()
        with scope.call:
            try:
                begun = self._round(())
                while self._running:
                    self._ready = loop.create_future()
                    self._report_begun(begun)
                    for one in begun:
                        task = loop.create_task(self._ado(one))
                        under_way.add(task)
                        task.add_done_callback(under_way.discard)
                    await self._ready
                    begun = self._round(self._take_done())
            finally:
                for task in list(under_way):
                    task.cancel()
                if under_way:
                    await asyncio.wait(list(under_way))
                if self._done:
                    self._keep_done(scope.stopping)
        return self._outcome()

    def _do(self, one: _Step, kept: Kept) -> None:
        """Make a step in this context, which is its own: so nothing of it is set back."""
        frames = self._journal.doing.frames
        try:
            current_step.set(one)
            frames[one] = None
            kept.default_factory = partial(self._fn, one.item)  # see `Journal.step`
            try:
                kept.__getitem__(0)
            except BaseException:
                if not kept:
                    raise
            finally:
                del frames[one]
            one.value = kept[0]
            one.text = steps.dump(self._name, one.value, self._type)
        except BaseException as error:
            one.error = error
        self._done.append(one)
        kept.clear()
        if self._waits:
            self._waits = False
            self._woken.wake()

    async def _ado(self, one: _Step) -> None:
        # Written as `_do` is: what they share would be one more call of Python in each step.
        frames = self._journal.doing.frames
        answer: dict[int, Any] = {}
        try:
            current_step.set(one)
            frames[one] = None
            try:
                await awaited(self._fn(one.item), self._journal.cancel_scope, answer)
            finally:
                del frames[one]
            one.value = answer[0]
            one.text = steps.dump(self._name, one.value, self._type)
        except BaseException as error:
            one.error = error
        self._done.append(one)
        if not self._ready.done():
            self._ready.set_result(None)

    def _take_done(self) -> list[_Step]:
        return [self._done.popleft() for _ in range(len(self._done))]

    def _keep_done(self, stop: BaseException | None, threads: MapThreads | None = None) -> None:
        """The map is stopped: record what its steps gave, those on ``threads`` soon. The others are in doubt."""
        scope = self._journal.cancel_scope
        if isinstance(stop, ClaimLost) or not scope.awaits_answer:
            return
        with scope.unbroken:  # what is stopped once more is stopped after this
            never_begun = self._wait_for_calls(threads) if threads is not None else 0
            if scope.awaits_answer:
                done, raised = self._sorted(self._take_done())
                self._send(done, raised, (), never_begun)()

    def _wait_for_calls(self, threads: MapThreads) -> int:
        """Wait for the calls that are out on its threads. Returns how many of their steps are never begun."""
        never_begun, ends = threads.begin_no_more(), SYSTEM.monotonic() + RETURNING
        while threads.busy and self._journal.cancel_scope.awaits_answer and SYSTEM.monotonic() < ends:
            waiting.sleep(LOOK)
        if threads.busy:
            log.warning("%s is stopped with %d calls out, which are in doubt", self._name, threads.busy)
        return never_begun

    def _look_for_stop(self) -> None:
        stop = self._journal.cancel_scope.stopping
        if stop is not None and not isinstance(stop, PATIENT):
            raise stop

    def _round(self, ended: Sequence[_Step]) -> list[_Step]:
        """Store the finished steps, and return those that begin now."""
        return self._send_round(ended, [])()

    def _send_round(self, ended: Sequence[_Step], held: list[_Step]) -> Callable[[], list[_Step]]:
        """Send the finished steps to the store; what it returns waits for that, and returns those that begin then.

        Those that are ``held`` back are dropped if no more are to begin: each of these outcomes raises.
        """
        done, raised = self._sorted(ended)
        if ended:
            fault_points.reached("step done, not recorded")
        self._running -= len(ended)
        # What code of the author's gives next may take its time, or raise: what is paid is recorded before.
        first = self._every is None or self._stop is not None
        if first:
            self._send(done, raised, (), 0)()
        if self._stop is not None and not isinstance(self._stop, PATIENT):
            raise self._stop
        self._begun = begun = self._begin()
        never_begun = 0
        if held and self._is_over():
            never_begun = len(held)
            held.clear()
        acknowledged = self._send([] if first else done, [] if first else raised, begun, never_begun)
        self._running += len(begun) - never_begun
        return partial(self._end_round, acknowledged, done, raised, begun)

    def _sorted(self, ended: Sequence[_Step]) -> tuple[list[_Step], list[_Step]]:
        """Return those that are done, whose files are recorded, and those that raised."""
        done, raised = list[_Step](), list[_Step]()
        for one in ended:
            if one.error is None:
                done.append(one)
            elif isinstance(one.error, RAISED):
                self._errors[one.index] = one.error
                raised.append(one)
            else:  # it drops nothing: whether the step was done is in doubt
                self._stop = self._stop or one.error
        if not self._journal.files.idle:
            for one in done:
                self._journal.files.keep(one.key, one.mark)
        return done, raised

    def _end_round(
        self, acknowledged: Callable[[], None], done: list[_Step], raised: list[_Step], begun: list[_Step]
    ) -> list[_Step]:
        acknowledged()
        as_is = steps.AS_WRITTEN if self._type is None else ()
        for one in done:
            is_one = type(one.value) in as_is
            self._results[one.index] = one.value if is_one else steps.load(one.text, self._type)
        ended = len(done) + len(raised)
        self._ended += ended
        if ended:
            fault_points.reached("step recorded, task not ended")
            self._report(self._ended, self._every)
        if begun:
            fault_points.reached("step begun, not done")
        return begun

    def _begin(self) -> list[_Step]:
        """The steps that begin now; none after an item whose iterator raised."""
        begun = list[_Step]()
        try:
            if not self._is_over():
                self._add_next(begun, self._at_once - self._running)
        except RAISED as error:
            self._broke = error
        if not self._journal.files.idle:
            for one in begun:
                one.mark = self._journal.files.mark()
        return begun

    def _send(
        self, done: Sequence[_Step], raised: Sequence[_Step], begun: Sequence[_Step], never_begun: int
    ) -> Callable[[], None]:
        """Send what ended and what begins to the store. What it returns waits until it is stored."""
        self._is_posted = False
        if not (done or raised or begun or never_begun):
            return _nothing
        dropped = sum(one.entry is not None for one in raised) + never_begun
        # As `DoneStep(...)`, which would be one more call in each step.
        results = [tuple.__new__(DoneStep, (one.key, one.text, one.entry, NO_TOKENS, False)) for one in done]
        with self._journal.cancel_scope.write:
            acknowledged = self._journal.post_results(results, dropped=dropped, begins=len(begun))
        self._is_posted = acknowledged is not None
        if done and self._is_posted:
            fault_points.reached("steps sent to the store, not acknowledged")
        return partial(self._report_ended, acknowledged, done, raised)

    def _report_ended(
        self, acknowledged: Callable[[], None] | None, done: Sequence[_Step], raised: Sequence[_Step]
    ) -> None:
        with self._journal.cancel_scope.write:
            if acknowledged is not None:
                acknowledged()
            if self._watch is not None:
                for one in done:
                    if one.watch is not None:
                        one.watch.ended(one.value)
                for one in raised:
                    if one.watch is not None and one.error is not None:
                        one.watch.failed(one.error)

    def _report_begun(self, begun: Sequence[_Step]) -> None:
        if self._watch is not None:
            with self._journal.cancel_scope.write:
                for one in begun:
                    if one.watch is not None:
                        one.watch.began()

    def _add_next(self, begun: list[_Step], room: int) -> None:
        """Add the next steps that are not recorded, as there is room; recorded ones before them are replayed."""
        journal, scope, identity = self._journal, self._journal.cancel_scope, steps.identity
        while room > 0 and scope.stopping is None:
            found = next(self._items, None)
            if found is None:
                return
            index, item = found
            one, recorded = journal.find_step(identity(self._name, (item,), {}), STEP, self._outer, None, _Step)
            if recorded is None:
                room -= 1
                self._results.append(None)
                one.index, one.item = index, item
                if self._watch is not None:
                    one.watch = self._watch()
                if one.gave_up is not None:
                    journal.is_made_again(one)
                begun.append(one)
            else:
                self._results.append(journal.replay(one, recorded, self._type))
                self._ended += 1

    def _is_over(self) -> bool:
        """Whether no more steps are to begin."""
        if self._stop is not None or self._broke is not None or self._journal.cancel_scope.stopping is not None:
            return True
        some = self._errors.values()
        return bool(some) and (self._on_error == "first" or not all(isinstance(one, Exception) for one in some))

    def _outcome(self) -> list[Any]:
        if self._stop is not None:
            raise self._stop
        self._journal.cancel_scope.check()
        if self._broke is not None:
            raise self._broke
        errors = [self._errors[index] for index in sorted(self._errors)]
        plain = [one for one in errors if isinstance(one, Exception)]
        if errors and (self._on_error == "first" or len(plain) < len(errors)):
            raise next((one for one in errors if not isinstance(one, Exception)), errors[0])
        if plain and self._on_error == "all":
            raise ExceptionGroup(self._named(plain), plain)
        for index, error in self._errors.items():
            self._results[index] = error
        return self._results

    def _named(self, plain: Sequence[Exception]) -> str:
        """Say which items raised, and what. Items are named by their index: no payload is told."""
        said = [f"item {index}: {first_line(self._errors[index])}" for index in sorted(self._errors)[:NAMED]]
        if len(plain) > NAMED:
            said.append(f"and {len(plain) - NAMED} more")
        return f"{self._name}: {len(plain)} of {len(self._results)} items raised: {'; '.join(said)}"
