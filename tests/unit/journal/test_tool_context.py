"""What uses of tools change in the objects that they are lent: there again in an attempt that replays the uses."""

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr

from runner import Crew, Task
from runner.journal.tool_uses import Use, recorded


class Order(BaseModel):
    number: int
    lines: list[str] = []
    _seen: int = PrivateAttr(default=0)


@dataclasses.dataclass(frozen=True)
class Frozen:
    paid: list[int] = dataclasses.field(default_factory=list)


class Plain:
    __slots__ = ("at", "more")

    def __init__(self) -> None:
        self.at = datetime.date(2026, 11, 23)


class Deps:
    """As an author has it: data, objects of classes of theirs, and a client."""

    def __init__(self) -> None:
        self.client = threading.Lock()
        self.paid: list[Any] = []
        self.by_name: dict[Any, Any] = {"a": 1, 2: "two"}
        self.tags = {"x"}
        self.last: collections.deque[int] = collections.deque([1], maxlen=2)
        self.orders = [Order(number=1), Order(number=2)]
        self.first = self.orders[0]
        self.frozen, self.plain = Frozen(), Plain()
        self.total = 0


def append(deps: Deps) -> None:
    deps.paid.append(("a", datetime.date(2026, 11, 23)))


def set_keys(deps: Deps) -> None:
    deps.by_name.update({"b": [1], 3: {"x": 1.5}, "a": True})
    del deps.by_name[2]


def fill(deps: Deps) -> None:
    deps.tags |= {"y"}
    deps.last.append(2)
    deps.last.append(3)


def inside(deps: Deps) -> None:
    deps.first.lines.append("bought")
    deps.first._seen = 7
    deps.frozen.paid.append(5)
    deps.plain.more = Frozen([1])
    deps.plain.at += datetime.timedelta(days=1)


def move(deps: Deps) -> None:
    deps.orders.append(deps.orders.pop(0))
    deps.by_name["last"] = deps.first
    deps.by_name["client"] = deps.client
    deps.total += 3


def shown(deps: Deps) -> Any:
    same = [deps.first is one for one in deps.orders]
    handle = deps.by_name.get("client") is deps.client
    plain = [deps.plain.at, getattr(deps.plain, "more", None)]
    state = [deps.paid, list(deps.by_name)[:4], deps.by_name.get("a"), sorted(deps.tags), deps.last, deps.orders, plain]
    return repr([state, deps.frozen, deps.first._seen, deps.total, same, handle, deps.last.maxlen])


def attempts(make: Callable[[], Any], work: Callable[[Any, int], Any], look: Callable[[Any], Any] = shown) -> list[Any]:
    """What a task's context was after its work, in an attempt that fails then, and in the next one."""
    found: list[Any] = []

    def run(_: Any) -> str:
        deps = make()
        work(deps, len(found))
        found.append(look(deps))
        if len(found) == 1:
            raise RuntimeError("once more")
        return "done"

    Crew(tasks=[Task(name="a", run=run, max_retries=1, retry_delay=0)]).kickoff()
    return found


def tool(fn: Callable[..., Any]) -> Callable[..., Any]:
    return recorded(fn, lambda *lent: Use(fn.__name__, [], lent))


@pytest.mark.parametrize("change", [append, set_keys, fill, inside, move])
def test_what_a_use_changed_is_there_again_without_it(change: Callable[[Deps], None]) -> None:
    uses: list[int] = []

    @tool
    def use(deps: Deps) -> str:
        uses.append(1)
        change(deps)
        return "done"

    first, again = attempts(Deps, lambda deps, _: [use(deps), use(deps)] if change is append else use(deps))
    assert again == first != shown(Deps())
    assert len(uses) == (2 if change is append else 1)


def lock(deps: Deps) -> None:
    deps.client = threading.Lock()


def strange(deps: Deps) -> None:
    deps.by_name["strange"] = Plain()


def shared(deps: Deps) -> None:
    deps.by_name["one"] = deps.by_name["other"] = []


class Library:
    """Nothing of it is seen but its copy."""

    def __init__(self) -> None:
        self.count = 0

    def __reduce__(self) -> Any:
        return Library, (), {"count": self.count}


@pytest.mark.parametrize("change", [lock, strange, shared])
def test_a_use_that_left_what_no_record_makes_again_is_made_again(change: Callable[[Deps], None]) -> None:
    uses = []

    @tool
    def use(deps: Deps) -> None:
        uses.append(1)
        change(deps)

    attempts(Deps, lambda deps, _: use(deps))
    assert len(uses) == 2


def test_a_use_that_changed_a_librarys_object_is_made_again_and_one_that_did_not_is_not() -> None:
    uses = []

    @tool
    def use(deps: dict[str, Any]) -> None:
        uses.append("change")
        deps["library"].count += 1

    @tool
    def look(deps: dict[str, Any]) -> int:
        uses.append("look")
        return int(deps["library"].count)

    def work(deps: dict[str, Any], _: int) -> None:
        use(deps)
        assert look(deps) == 1

    assert attempts(lambda: {"library": Library()}, work, lambda deps: deps["library"].count) == [1, 1]
    assert uses == ["change", "look", "change"]


class Kit:
    """As of Agno's: it keeps its own methods as tools."""

    def __init__(self) -> None:
        self.bought: list[str] = []
        self.tools = [self.buy]

    def buy(self) -> None:
        self.bought.append("egg")


def test_an_object_that_holds_its_own_methods_is_restored_as_any_other() -> None:
    uses = []

    @tool
    def use(kit: Kit) -> None:
        uses.append(1)
        kit.tools[0]()

    assert attempts(Kit, lambda kit, _: use(kit), lambda kit: kit.bought) == [["egg"], ["egg"]]
    assert uses == [1]


def test_what_a_use_changed_before_it_raised_is_there_again() -> None:
    @tool
    def use(deps: list[int]) -> None:
        deps.append(1)
        raise ValueError("no")

    def work(deps: list[int], _: int) -> None:
        with pytest.raises(ValueError, match="no"):
            use(deps)

    assert attempts(list, work, list) == [[1], [1]]


class Waits(Exception):
    """Not recorded: it stops the task."""


def side_by_side(uses: list[str], waits: str) -> Callable[[list[str], int], None]:
    """Three uses at once that change one list, and two alone; in the first attempt one of the three may stop it."""

    async def work(deps: list[str], attempt: int) -> None:
        begun = asyncio.Event()

        async def pay(deps: list[str], name: str) -> str:
            uses.append(name)
            if name != "look":
                deps.append(name)
            if name in "cd":
                begun.set()
            if name in "abc":
                await begun.wait()
            if not attempt and name == waits:
                raise Waits
            return name

        use = recorded(pay, lambda deps, name: Use("pay", name, (deps,)), passing=(Waits,))
        await use(deps, "look")
        await asyncio.gather(*(use(deps, name) for name in "abc"))
        await use(deps, "d")

    def run(deps: list[str], attempt: int) -> None:
        with contextlib.suppress(Waits):
            asyncio.run(work(deps, attempt))

    return run


def test_what_uses_side_by_side_changed_is_there_again_once_all_are_over() -> None:
    uses: list[str] = []
    assert attempts(list, side_by_side(uses, waits=""), list) == [["a", "b", "c", "d"]] * 2
    assert uses == ["look", "a", "b", "c", "d"]


def test_uses_side_by_side_are_made_again_where_one_was_not_over() -> None:
    uses: list[str] = []
    assert attempts(list, side_by_side(uses, waits="b"), list) == [["a", "b", "c"], ["a", "b", "c", "d"]]
    assert uses == ["look", "a", "b", "c", "a", "b", "c", "d"]
