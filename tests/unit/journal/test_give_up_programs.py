"""Programs of concurrent steps, tools and calls, some of which are given up, return the same after a kill at any point.

No outcome of these programs depends on how fast something is: what is cancelled would never have ended.
"""

import asyncio
import contextlib
import itertools
import json
import os
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.ledger import STEP, AccountKey
from runner.journal import end_order
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import inside_of
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne
from runner.journal.steps import current_step
from runner.journal.tool_uses import durable
from runner.llm.recording.recorded_call import RecordedCall, parse_request

EXAMPLES = os.environ.get("RUNNER_TEST_EXAMPLES")
FOREVER = 1e6
ANSWER = b'{"choices": [{"message": {"content": "said"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
Program = tuple[Any, ...]

# -- time that passes when nothing else is to be done


class Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing ends any more"
        self.now += timeout
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._selected = Selector()
        super().__init__(self._selected)

    def time(self) -> float:
        return self._selected.now


class LoopClock:
    def __init__(self, loop: Loop) -> None:
        self.now = self.monotonic = loop.time

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError("a coroutine blocks")

    def wait(self, asleep: Callable[[float], object], seconds: float, /) -> None:
        raise AssertionError("a coroutine blocks")

    async def sleep_async(self, seconds: float, /) -> None:
        await asyncio.sleep(seconds)


# -- a store, and what it has after each write


@dataclass
class State:
    recorded: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    open: list[AccountKey] = field(default_factory=list)
    begun: int = 0
    paid: int = 0
    dropped: int = 0

    def copy(self) -> "State":
        return State(dict(self.recorded), list(self.made), list(self.open), self.begun, self.paid, self.dropped)


class Store(OneByOne):
    def __init__(self, recorded: dict[str, str]) -> None:
        self.state = State(dict(recorded))
        self.after: list[State] = []

    def _written(self) -> None:
        self.after.append(self.state.copy())

    def begin_step(self, entry: AccountKey = STEP, **_: Any) -> None:
        self.state.open.append(entry)
        self.state.begun += 1
        self._written()

    def mark_sent(self, *_: Any) -> None: ...

    def drop_step(self, entry: AccountKey = STEP, *, intent_only: bool = False, **_: Any) -> None:
        self.state.open.remove(entry)
        if intent_only:
            self.state.begun -= 1
        else:
            self.state.dropped += 1
        self._written()

    def record_step(self, step: str, value: str, *, entry: AccountKey | None = STEP, **_: Any) -> None:
        assert step not in self.state.recorded
        self.state.recorded[step] = value
        if entry is not None:
            self.state.open.remove(entry)
            self.state.paid += 1
        self._written()


# -- programs


class ReadTimeout(Exception):
    """A client's."""


class Failure(Exception):
    """A tool's."""


DELAYS = st.sampled_from([0, 1, 2, 7, 11])
KINDS = st.sampled_from(["step", "tool", "call"])
FAILS = st.sampled_from([("step fails", 0), ("step fails", 3), ("tool fails", 0), ("tool fails", 3), ("late", 2)])


@st.composite
def programs(draw: st.DrawFn, depth: int = 3) -> Program:
    """A program that ends."""
    kinds = ["seq", "gather", "inside", "timeout", "again", "race", "group"] if depth else []
    kind = draw(st.sampled_from(["one", "one", "fails", *kinds]))
    if kind == "one":
        return draw(KINDS), draw(DELAYS)
    if kind == "fails":
        return draw(FAILS)
    if kind == "again":
        return kind, draw(KINDS)
    inner, others = programs(depth - 1), st.lists(hanging(depth - 1), min_size=1, max_size=2)
    if kind == "timeout":
        return kind, draw(st.sampled_from([1, 4, 9])), draw(hanging(depth - 1))
    if kind in ("race", "group"):
        return kind, draw(inner if kind == "race" else FAILS), draw(others)
    return kind, draw(inner if kind == "inside" else st.lists(inner, min_size=1, max_size=3))


@st.composite
def hanging(draw: st.DrawFn, depth: int) -> Program:
    """A program that only ends if it is cancelled."""
    kind = draw(st.sampled_from(["one", *(["seq", "inside", "finally", "gather"] if depth else [])]))
    if kind == "one":
        return draw(KINDS), FOREVER
    inner = hanging(depth - 1)
    if kind == "seq":
        return kind, [*draw(st.lists(programs(depth - 1), max_size=2)), draw(inner)]
    if kind == "gather":
        return kind, [draw(inner), draw(inner)]
    return (kind, draw(inner)) if kind == "inside" else (kind, draw(inner), draw(programs(0)))


class Run:
    """One attempt at a program."""

    def __init__(self, recorded: dict[str, str]) -> None:
        self.store, self.loop = Store(recorded), Loop()
        self._numbers = itertools.count()
        self.result: Any = None

    def __call__(self, program: Program) -> "Run":
        self.journal = Journal(dict(self.store.state.recorded), self.store, CancelScope(), clock=LoopClock(self.loop))
        try:
            with inside_of(self.journal):
                self.result = self.loop.run_until_complete(self.of(program, "main"))
        finally:
            self.loop.close()
        return self

    def of(self, program: Program, path: str) -> Coroutine[Any, Any, Any]:
        """The coroutine of a program; the names of its steps are made of where they are in it."""
        kind, *about = program
        made: Coroutine[Any, Any, Any] = getattr(self, "_" + kind.replace(" ", "_"))(path, *about)
        return made

    def _made(self, key: str) -> None:
        self.store.state.made.append(key)

    async def _step(self, name: str, seconds: float, fails: bool = False) -> Any:
        async def work(name: str) -> str:
            frame = current_step.get()
            assert frame is not None
            self._made(frame.key)
            await asyncio.sleep(seconds)
            if fails:
                raise Failure(name)
            return name

        return await self.journal.step("step", work, (name,), {})

    async def _tool(self, name: str, seconds: float, fails: bool = False) -> Any:
        @durable
        async def tool(name: str) -> str:
            frame = current_step.get()
            assert frame is not None
            self._made(frame.key)
            await asyncio.sleep(seconds)
            if fails:
                raise Failure(name)
            return name

        return await tool(name)

    async def _call(self, name: str, seconds: float, timeout: float = 2 * FOREVER) -> Any:
        body = json.dumps({"model": "gpt", "messages": [{"role": "user", "content": name}]}).encode()
        asked = parse_request("POST", "http://model/v1/chat/completions", body, self.journal, unattributed=False)
        assert asked is not None
        call = RecordedCall(asked, self.journal, unattributed=False)
        if call.is_held:
            await call.hold_async()
        if call.is_known and (answer := call.recorded(ReadTimeout)) is not None:
            return answer.body.decode()
        await call.wait_async()
        with call:
            await call.headers_leave_async()
            call.body_leaves(is_buffered=True)
            self._made(call._call.frame.key)
            call.body_has_left()
            await asyncio.sleep(min(seconds, timeout))
            if seconds > timeout:
                raise ReadTimeout(name)
            call.answered(200, [("Content-Type", "application/json")])
            await call.whole_async(ANSWER)
            return ANSWER.decode()

    async def _late(self, name: str, timeout: float) -> Any:
        try:
            return await self._call(name, FOREVER, timeout)
        except ReadTimeout as error:
            return f"late: {error}"

    async def _step_fails(self, name: str, seconds: float) -> Any:
        try:
            return await self._step(name, seconds, fails=True)
        except Failure as error:
            return f"failed: {error}"

    async def _tool_fails(self, name: str, seconds: float) -> Any:
        try:
            return await self._tool(name, seconds, fails=True)
        except Failure as error:
            return f"failed: {error}"

    async def _seq(self, path: str, parts: list[Program]) -> Any:
        return [await self.of(one, f"{path}.{n}") for n, one in enumerate(parts)]

    async def _gather(self, path: str, parts: list[Program]) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.of(one, f"{path}.{n}")) for n, one in enumerate(parts)]
        return [one.result() for one in tasks]

    async def _inside(self, path: str, part: Program) -> Any:
        @durable
        async def around(path: str) -> Any:
            frame = current_step.get()
            assert frame is not None
            self._made(frame.key)
            return await self.of(part, path)

        return await around(path)

    async def _finally(self, path: str, part: Program, after: Program) -> Any:
        try:
            return await self.of(part, f"{path}.try")
        finally:
            await self.of(after, f"{path}.finally")

    async def _timeout(self, path: str, limit: float, part: Program) -> Any:
        try:
            return await asyncio.wait_for(self.of(part, path), limit)
        except TimeoutError:
            return "timeout"

    async def _again(self, path: str, kind: str) -> Any:
        """The same one once more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await self.of((kind, FOREVER), path)
        return await self.of((kind, 1), path)

    async def _race(self, path: str, first: Program, others: list[Program]) -> Any:
        tasks = [
            asyncio.create_task(self.of(one, f"{path}.{n}")) for n, one in reversed([*enumerate([first, *others])])
        ]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in rest:
            one.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        return [one.result() for one in done]

    async def _group(self, path: str, fails: Program, others: list[Program]) -> Any:
        async def fail() -> None:
            raise Failure(await self.of(fails, f"{path}.fails"))

        told: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                for n, one in enumerate(others):
                    group.create_task(self.of(one, f"{path}.{n}"))
                group.create_task(fail())
        except* Failure as errors:
            told += map(str, errors.exceptions)
        return told


@given(programs())
@settings(
    max_examples=int(EXAMPLES or min(30, settings.default.max_examples)),
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
)
def test_a_program_that_is_killed_anywhere_returns_the_same_and_makes_nothing_that_is_known_again(
    program: Program,
) -> None:
    alone = Run({})(program)
    seconds = alone.loop.time()
    for state in [State(), *alone.store.after]:
        again = Run(state.recorded)(program)
        end = again.store.state
        assert again.result == alone.result
        assert again.loop.time() < seconds + end_order.PATIENCE, "it waited for what does not come"
        for key in end.made:
            assert key not in state.recorded
            assert f"{key} gave up" not in state.recorded
        in_doubt, never_made = len(state.open) + len(end.open), state.begun - len(state.made)
        paid, dropped = state.paid + end.paid, state.dropped + end.dropped
        assert len(state.made) + len(end.made) == paid + dropped + in_doubt - never_made
        whole = Run(end.recorded)(program)
        assert whole.result == alone.result
        assert whole.store.state.paid == 0


def test_one_that_is_not_cancelled_this_time_waits_as_long_as_its_attempt_had_taken() -> None:
    alone = Run({})(("seq", [("step", 60), ("timeout", 4, ("call", FOREVER))]))
    again = Run(alone.store.state.recorded)(("seq", [("step", 60), ("call", 3)]))
    assert 64 < again.loop.time() < 64 + end_order.PATIENCE + 3 + 1
    assert len(again.store.state.made) == again.store.state.paid == 1
