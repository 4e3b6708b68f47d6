"""Concurrent steps that are replayed end in the order in which they ended before."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

import pytest

from runner.core.errors import Interrupted
from runner.journal import end_order
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.give_ups import GiveUp
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne
from runner.journal.records import HELD_AT_MOST
from runner.journal.step_map import StepMap

ORDERS = ["abcd", "dcba", "cadb", "bdac"]


class Recorder(OneByOne):
    """Keeps steps as a store would."""

    def __init__(self) -> None:
        self.recorded: dict[str, str] = {}

    def begin_step(self, *_: Any, **__: Any) -> None: ...

    def mark_sent(self, *_: Any) -> None: ...

    def drop_step(self, *_: Any, **__: Any) -> None: ...

    def record_step(self, step: str, value: str, **_: Any) -> None:
        self.recorded[step] = value


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def attempt(recorder: Recorder) -> Callable[..., Journal]:
    def start(cancel_scope: CancelScope | None = None) -> Journal:
        return Journal(recorder.recorded, recorder, cancel_scope or CancelScope())

    return start


async def of_coroutines(journal: Journal, names: str, order: str | None) -> str:
    """The order in which these concurrent steps end; those that are made end in the ``order`` given."""
    turns, begun = {name: asyncio.Event() for name in names}, list[str]()

    async def look(name: str) -> str:
        assert order is not None, f"{name} was made again"
        begun.append(name)
        if len(begun) == len(names):
            turns[order[0]].set()
        await turns[name].wait()
        return name

    told: list[str] = []
    for one in asyncio.as_completed([journal.step("look", look, (name,), {}) for name in names]):
        told.append(await one)
        for after in (order or "")[len(told) :][:1]:
            turns[after].set()
    return "".join(told)


def of_threads(journal: Journal, names: str, order: str | None) -> str:
    """The same on threads."""
    turns, begun, go = {name: threading.Event() for name in names}, list[str](), Future[str]()

    def look(name: str) -> str:
        assert order is not None, f"{name} was made again"
        begun.append(name)
        if len(begun) == len(names):
            turns[order[0]].set()
        assert turns[name].wait(30)
        return name

    def use(name: str) -> Any:
        assert everyone.wait(30)
        return journal.step("look", look, (name,), {})

    told, everyone = list[str](), threading.Event()
    go.set_result("")
    with ThreadPoolExecutor(len(names)) as pool:
        for one in as_completed([go, *[pool.submit(use, name) for name in names]]):
            everyone.set()  # of those that have ended before, `as_completed` keeps no order
            told += one.result()
            for after in (order or "")[len(told) :][:1] if told else ():
                turns[after].set()
    return "".join(told)


def on_a_loop(journal: Journal, names: str, order: str | None) -> str:
    return asyncio.run(of_coroutines(journal, names, order))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("made", [on_a_loop, of_threads])
def test_they_are_replayed_in_the_order_in_which_they_ended(made, order, attempt):
    assert made(attempt(), "abcd", order) == order
    assert made(attempt(), "abcd", None) == order
    assert made(attempt(), "abcd", None) == order


@pytest.mark.parametrize("made", [on_a_loop, of_threads])
def test_those_in_flight_at_a_kill_end_after_those_that_were_recorded(made, attempt, recorder):
    assert made(attempt(), "abcd", "dbca") == "dbca"
    recorder.recorded = {name: text for name, text in recorder.recorded.items() if json.loads(text) in "db"}
    assert made(attempt(), "abcd", "dbac") == "dbac"
    assert made(attempt(), "abcd", None) == "dbac"


def test_the_records_of_steps_in_turn_are_their_results_and_nothing_else(attempt, recorder):
    journal = attempt()

    def outer(value: Any) -> Any:
        return [journal.step("inner", lambda one: one, (value,), {})]

    for value in ["a", {"b": 1}, "ends with a space "]:
        journal.step("outer", outer, (value,), {})
    assert not end_order.overtaken(recorder.recorded)
    assert [text for name, text in recorder.recorded.items() if "/" not in name] == [
        '["a"]',
        '[{"b": 1}]',
        '["ends with a space "]',
    ]


def test_the_record_of_an_overtaken_step_is_the_same_json(attempt, recorder):
    on_a_loop(attempt(), "ab", "ba")
    assert len(end_order.overtaken(recorder.recorded)) == 1
    assert sorted(json.loads(text) for text in recorder.recorded.values()) == ["a", "b"]


@pytest.mark.parametrize("made", [on_a_loop, of_threads])
def test_code_that_does_other_things_this_time_goes_on(made, attempt, monkeypatch):
    monkeypatch.setattr(end_order, "PATIENCE", 0.1)
    made(attempt(), "abcd", "dcba")
    assert sorted(made(attempt(), "abc", None)) == ["a", "b", "c"]


def test_a_step_that_was_asked_for_after_the_answer_of_another_is_not_waited_for(attempt):
    """What is done in turn beside what is concurrent: one chain of steps, and one long step."""

    async def work(journal: Journal, made: bool) -> list[str]:
        over, told = asyncio.Event(), list[str]()

        async def long() -> str:
            assert made
            await over.wait()
            return "long"

        async def short(number: int) -> str:
            assert made
            return f"short {number}"

        async def chain() -> None:
            for number in range(3):
                told.append(await journal.step("short", short, (number,), {}))
            over.set()

        async def alone() -> None:
            told.append(await journal.step("long", long, (), {}))

        await asyncio.gather(alone(), chain())
        return told

    first = asyncio.run(work(attempt(), made=True))
    assert first == ["short 0", "short 1", "short 2", "long"]
    assert asyncio.run(work(attempt(), made=False)) == first


def test_a_stop_ends_the_wait(attempt):
    of_threads(attempt(), "ab", "ba")
    scope = CancelScope()
    journal = attempt(scope)
    stop = threading.Timer(0.1, lambda: scope.ask(Interrupted("enough")))
    stop.start()
    with pytest.raises(Interrupted):
        journal.step("look", str, ("a",), {})
    stop.join()


@pytest.mark.parametrize("made", [on_a_loop, of_threads])
def test_a_replay_of_many_holds_no_more_than_some(made, attempt, monkeypatch):
    """A hundred that had ended in the order in which they began: to hold all of them took 3 seconds."""
    names = "".join(chr(0x4E00 + number) for number in range(100))
    assert made(attempt(), names, names) == names
    held, journal = [], attempt()
    wait = journal._held_back

    def held_back(*given: Any, **named: Any) -> Iterator[float]:
        for seconds in wait(*given, **named):
            held.append(len(journal._held))
            yield seconds

    monkeypatch.setattr(journal, "_held_back", held_back)
    assert sorted(made(journal, names, None)) == sorted(names)
    assert 1 < max(held) <= HELD_AT_MOST


def test_a_replay_of_many_coroutines_sleeps_once_or_twice_for_each_that_it_holds(attempt, monkeypatch):
    """Each is taken within some turns of their loop: to sleep for these, too, took a second."""
    names = "".join(chr(0x4E00 + number) for number in range(100))
    assert on_a_loop(attempt(), names, names) == names
    journal, looks = attempt(), Counter[str]()
    wait = journal._held_back

    def held_back(frame: Any, *loop: Any) -> Iterator[float]:
        for seconds in wait(frame, *loop):
            looks[frame.key] += seconds > 0
            yield seconds

    monkeypatch.setattr(journal, "_held_back", held_back)
    assert sorted(on_a_loop(journal, names, None)) == sorted(names)
    assert HELD_AT_MOST / 2 < max(looks.values()) < 3 * HELD_AT_MOST


@pytest.mark.parametrize("gave_up", [False, True])
def test_a_step_that_a_map_makes_this_time_is_waited_for_no_longer(gave_up, attempt, recorder, monkeypatch):
    """Two were steps of their own in the attempt before, and one of them was overtaken, or given up."""
    on_a_loop(attempt(), "ab", "ba")
    if gave_up:
        name = next(name for name, text in recorder.recorded.items() if json.loads(text) == "a")
        recorder.recorded[f"{name} gave up"] = GiveUp("", 0.0).text()
        del recorder.recorded[name]
    journal = attempt()
    assert StepMap(journal, "look", str, ["a", "b"], at_once=2).run() == ["a", "b"]
    assert (journal._held, journal._pending) == (set(), set())
