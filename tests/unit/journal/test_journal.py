"""A step is done once: replayed by its name, arguments and occurrence; recorded with what its annotation says."""

import asyncio
import dataclasses
import enum
import functools
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from runner import durable, idempotency_key
from runner.core.errors import Interrupted
from runner.core.idempotency import originating
from runner.core.ledger import STEP, Counters
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.current_journal import inside_of
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne
from runner.journal.step_map import StepMap


class Recorder(OneByOne):
    """Keeps steps as a store would, and what was asked of it in which order."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}
        self.replayed = 0
        self.asked: list[str] = []

    def begin_step(self, entry=STEP, *, supersedes=(), intent_only=False) -> None:
        self.asked.append("begin")

    def mark_sent(self, entry) -> None: ...

    def drop_step(self, entry=STEP, *, intent_only=False) -> None:
        self.asked.append("drop")

    def record_step(self, step: str, value: str, *, replayed: Counters, **about: Any) -> None:
        assert step not in self.recorded, "each step is recorded once"
        self.asked.append("record")
        self.recorded[step] = value
        self.replayed += replayed.total()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def attempt(recorder):
    """A new attempt at the task: a journal of what was recorded so far. Gives ``step(name, fn, *args, **kwargs)``."""

    def start(cancel_scope: CancelScope | None = None):
        journal = Journal(recorder.recorded, recorder, cancel_scope or CancelScope())

        def step(name: str, fn: Any, *args: Any, **kwargs: Any) -> Any:
            return journal.step(name, fn, args, kwargs)

        step.journal = journal
        return step

    return start


def counted(fn=lambda *args, **kwargs: len(args)):
    """The function, and how often it was called as ``.calls``."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        call.calls += 1
        return fn(*args, **kwargs)

    call.calls = 0
    return call


def test_a_recorded_step_is_not_done_again(attempt, recorder):
    fn = counted(lambda n: {"n": n})
    first = attempt()
    assert [first("double", fn, i) for i in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
    second = attempt()
    assert [second("double", fn, i) for i in range(4)] == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]
    assert fn.calls == 4
    assert recorder.asked == ["begin", "record"] * 4
    assert recorder.replayed == 3, "those replayed are told with the next record"
    assert second.journal.take_replayed().total() == 0


def test_what_is_replayed_last_can_be_asked_for(attempt):
    attempt()("a", counted())
    again = attempt()
    again("a", counted())
    assert [again.journal.take_replayed().total() for _ in range(2)] == [1, 0]


def test_steps_may_be_done_in_another_order(attempt):
    fn = counted(lambda text: text.upper())
    first, second = attempt(), None
    assert [first("up", fn, text) for text in "abc"] == ["A", "B", "C"]
    second = attempt()
    assert [second("up", fn, text) for text in "cab"] == ["C", "A", "B"]
    assert fn.calls == 3


def test_the_same_call_twice_is_two_steps(attempt):
    numbers = iter(range(10))
    fn = counted(lambda: next(numbers))
    first = attempt()
    assert [first("roll", fn), first("roll", fn)] == [0, 1]
    again = attempt()
    assert [again("roll", fn), again("roll", fn), again("roll", fn)] == [0, 1, 2]


def test_the_name_counts_and_the_function_does_not(attempt):
    first = attempt()
    assert first("one", lambda: 1) == 1
    assert first("two", lambda: 2) == 2
    again = attempt()
    assert again("one", lambda: 3) == 1
    assert again("three", lambda: 3) == 3


class Colour(enum.Enum):
    red = "red"


@dataclasses.dataclass
class Point:
    x: int
    tags: Any = ()


class Page(BaseModel):
    url: str
    tags: set[str] = set()


class Pair(NamedTuple):
    left: int
    right: str


class Opaque:
    """Nothing that JSON knows."""


def key_of(recorder, attempt, *args: Any, **kwargs: Any) -> str:
    recorder.recorded.clear()
    attempt()("s", lambda *_, **__: None, *args, **kwargs)
    [key] = recorder.recorded
    return key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"x", "y", "z"}, {"z", "y", "x"}), (frozenset({1, 2}), {2, 1}),
        ([1, 2], (1, 2)), ({"k": {"b", "a"}}, {"k": {"a", "b"}}), (Point(1, {"a", "b"}), Point(1, {"b", "a"})),
        (Page(url="u", tags={"a", "b"}), Page(url="u", tags={"b", "a"})), (Opaque(), Opaque()),
        ([Opaque(), 1], [Opaque(), 1]), (lambda: 1, lambda: 2), (threading.Lock(), threading.Lock()),
    ],
)  # fmt: skip
def test_arguments_that_are_the_same(one, other, recorder, attempt):
    assert key_of(recorder, attempt, one) == key_of(recorder, attempt, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2), (1, "1"), (None, "null"), ([1, 2], [2, 1]), ({"a": 1}, {"a": 2}), ({1, 2}, {1, 3}),
        (Point(1), Point(2)), (Page(url="u"), Page(url="v")), (b"a", b"b"), (b"\xff", b"\xfe"),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)), (Path("a"), Path("b")),
        ("\udcff", "\udcfe"), (Opaque(), 1),
    ],
)  # fmt: skip
def test_arguments_that_differ(one, other, recorder, attempt):
    assert key_of(recorder, attempt, one) != key_of(recorder, attempt, other)


def test_keywords_count_in_any_order(recorder, attempt):
    assert key_of(recorder, attempt, a=1, b=2) == key_of(recorder, attempt, b=2, a=1)
    assert key_of(recorder, attempt, a=1) != key_of(recorder, attempt, b=1)
    assert key_of(recorder, attempt, 1) != key_of(recorder, attempt, a=1)


def test_an_argument_is_looked_at_and_not_used_up(attempt):
    assert attempt()("sum", sum, (i for i in range(4))) == 6


def test_an_argument_that_holds_itself_is_no_problem(attempt):
    knot: list[Any] = [1]
    knot.append(knot)
    assert attempt()("length", len, knot) == 2


@pytest.mark.slow
def test_a_step_is_the_same_in_every_process():
    """Sets of text come in another order in each process, objects at another address."""
    code = (
        "from runner.journal.steps import identity as i;"
        "class_ = type('Odd', (), {});"
        "print(i('s', ({'a','b','c','d'}, class_(), {'k': frozenset('xyz')}), {'z': 1}))"
    )
    run = functools.partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len({run(env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2", "3")}) == 1


def as_page() -> Page:
    return Page(url="u", tags={"a"})


def as_pages() -> list[Page]:
    return [as_page()]


def as_point() -> Point:
    return Point(1, ["t"])


def as_pair() -> Pair:
    return Pair(1, "r")


def as_time() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


def as_colour() -> Colour:
    return Colour.red


def as_maybe() -> Page | None:
    return None


def as_keys() -> dict[int, str]:
    return {1: "one"}


def as_set() -> set[str]:
    return {"a", "b"}


def as_path() -> Path:
    return Path("a/b")


@pytest.mark.parametrize(
    "fn", [as_page, as_pages, as_point, as_pair, as_time, as_colour, as_maybe, as_keys, as_set, as_path]
)
def test_the_annotation_says_what_comes_back(fn, attempt):
    """The first time as on a replay."""
    first, replayed = attempt()("s", fn), attempt()("s", fn)
    assert first == replayed == fn()
    assert type(first) is type(replayed) is type(fn())


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (None, None), ("text", "text"), (3, 3), (2.5, 2.5), (True, True), ([1, (2, 3)], [1, [2, 3]]),
        ({"a": {1}}, {"a": [1]}), (as_time(), "2026-01-01T00:00:00Z"), (Page(url="u"), {"url": "u", "tags": []}),
        (Point(1), {"x": 1, "tags": []}), ("ü\u2028", "ü\u2028"), ("broken \udcff", "broken \udcff"),
    ],
)  # fmt: skip
def test_without_one_json_does(value, back, attempt, recorder):
    """Code sees what it will see on a replay from the first time on."""
    assert attempt()("s", lambda: value) == attempt()("s", lambda: value) == back
    for text in recorder.recorded.values():
        text.encode()


def test_an_annotation_that_is_not_kept_says_nothing(attempt):
    def wrong() -> list[Page]:
        return ["no page"]

    def none() -> None:
        return "some"

    def unknown() -> "NotThere":  # noqa: F821 - it is nowhere
        return {"a": 1}

    step = attempt()
    assert step("wrong", wrong) == ["no page"]
    assert step("none", none) == "some"
    assert step("unknown", unknown) == {"a": 1}


@pytest.mark.parametrize(
    "value", [Opaque(), threading.Lock(), [Opaque()], lambda: 1, pytest.param(10**5000, id="long")]
)
def test_a_result_that_is_not_json_is_refused_in_words(value, attempt, recorder):
    with pytest.raises(TypeError, match=r"^step 'look' returned an? \w+, which is not JSON: return text, numbers"):
        attempt()("look", lambda: value)
    assert recorder.recorded == {}


def test_a_coroutine_from_a_plain_function_is_refused_in_words(attempt):
    async def answer() -> int:
        return 3

    with pytest.raises(TypeError, match=r"^step 'ask' returned a coroutine: give the async function itself"):
        attempt()("ask", lambda: answer())


def test_what_raised_is_not_recorded_and_may_be_tried_again(attempt, recorder):
    fn = counted(lambda: 1 / 0)
    step = attempt()
    with pytest.raises(ZeroDivisionError):
        step("divide", fn)
    assert recorder.asked == ["begin", "drop"]
    assert attempt()("divide", lambda: 1) == 1


def test_the_step_after_one_that_was_caught_is_another(attempt):
    """Code that catches and calls again makes a second step; on a replay the first is done again, the second is not."""
    flaky = counted(lambda: 1 / 0 if flaky.calls == 1 else flaky.calls)
    first = attempt()
    with pytest.raises(ZeroDivisionError):
        first("call", flaky)
    assert first("call", flaky) == 2
    again = attempt()
    assert again("call", flaky) == 3
    assert again("call", flaky) == 2


def test_a_stop_inside_a_step_leaves_it_in_doubt(attempt, recorder):
    def stopped() -> None:
        raise Interrupted("drain")

    with pytest.raises(Interrupted):
        attempt()("call", stopped)
    assert recorder.asked == ["begin"], "begun, neither dropped nor recorded"


def test_a_deferrable_stop_waits_for_the_record(attempt, recorder):
    cancel_scope = CancelScope()
    step = attempt(cancel_scope)
    with pytest.raises(Interrupted):
        step("call", lambda: cancel_scope.ask(Interrupted("drain")))
    assert recorder.asked == ["begin", "record"], "what was paid for is kept"
    fn = counted()
    for name in ("call", "next"):  # neither a replay nor a new step passes
        with pytest.raises(Interrupted):
            attempt(cancel_scope)(name, fn)
    assert fn.calls == 0


def test_async_steps(attempt, recorder):
    calls = []

    async def fetch(n: int) -> Page:
        calls.append(n)
        await asyncio.sleep(0)
        return Page(url=str(n))

    async def all_of(step: Any) -> list[Page]:
        return list(await asyncio.gather(*(step("fetch", fetch, n) for n in range(5))))

    first = asyncio.run(all_of(attempt()))
    assert first == [Page(url=str(n)) for n in range(5)]
    assert asyncio.run(all_of(attempt())) == first
    assert len(calls) == 5
    assert len(recorder.recorded) == 5


def test_async_steps_that_raise_or_are_no_json(attempt, recorder):
    async def fail() -> None:
        raise LookupError

    async def odd() -> Any:
        return Opaque()

    step = attempt()
    with pytest.raises(LookupError):
        asyncio.run(step("fail", fail))
    assert recorder.asked == ["begin", "drop"]
    with pytest.raises(TypeError, match=r"^step 'look \(twice\)' returned an Opaque, which is not JSON"):
        asyncio.run(step("look (twice)", odd))


def test_a_partial_of_an_async_function_is_async(attempt):
    async def add(a: int, b: int) -> int:
        return a + b

    assert asyncio.run(attempt()("add", functools.partial(add, 1), 2)) == 3


def test_steps_from_many_threads(attempt, recorder):
    fn = counted(lambda n: n * n)
    step = attempt()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: step("square", fn, n % 10), range(200))) == [(n % 10) ** 2 for n in range(200)]
    assert len(recorder.recorded) == 200
    again = attempt()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: again("square", fn, n % 10), range(200))) == [(n % 10) ** 2 for n in range(200)]
    assert again.journal.take_replayed().total() == 200
    assert all(json.loads(value) in range(82) for value in recorder.recorded.values())


def test_a_use_of_a_tool_in_a_thread_has_the_same_key_in_each_attempt(attempt):
    look, keys = durable(idempotency_key), []
    for journal in (attempt().journal, Journal({}, Recorder(), CancelScope())):
        with originating("run:task"), inside_of(journal, unattributed=True), ThreadPoolExecutor(1) as pool:
            keys.append(pool.submit(look).result())
    assert keys[0] == keys[1]
    assert keys[0].startswith("run:task:")


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("name", ["page \udcff", "\ud800", "Zoë \udfff"])
def test_a_name_that_cannot_be_written_down_is_refused_before_anything_is_done(recorder, side_by_side, name):
    done = []
    journal = Journal({}, recorder, CancelScope())
    several = StepMap(journal, name, done.append, [1, 2], at_once=2, on_error="first")
    step = several.run if side_by_side else functools.partial(journal.step, name, done.append, (1,), {})
    with pytest.raises(ValueError, match=r"^the step name '.*' contains half of a surrogate pair"):
        step()
    assert (done, recorder.asked) == ([], [])
