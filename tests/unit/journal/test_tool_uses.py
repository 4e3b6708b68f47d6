"""Uses of tools as steps: what a task that begins again gets of them."""

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import inspect
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError, create_model, validate_call

from runner import Crew, Task, durable, idempotency_key, tool
from runner.journal.journal import Journal
from runner.journal.tool_errors import ToolRaised
from runner.journal.tool_uses import Use, record_uses, recorded


class Part(BaseModel):
    number: int


@dataclasses.dataclass
class Found:
    part: Part
    at: datetime.date


class Refused(Exception):
    def __init__(self, why: str, code: int) -> None:
        super().__init__(why, code)


class Odd(Exception):
    def __init__(self, *, why: str) -> None:
        super().__init__(f"odd: {why}")
        self.why = why


def twice(work: Callable[[], Any]) -> list[Any]:
    """What a task got that did its work, failed, and did it again."""
    got: list[Any] = []

    def run(_: Any) -> str:
        try:
            got.append(work())
        except Exception as error:
            got.append(error)
        if len(got) == 1:
            raise RuntimeError("once more")
        return "done"

    Crew(tasks=[Task(name="a", run=run, max_retries=1, retry_delay=0)]).kickoff()
    return got


@pytest.mark.parametrize(
    "value",
    [
        *("text", 3, None, [1, {"a": 2}], b"bytes", ("a", 1), {1, 2}, Part(number=3)),
        [Part(number=1), Found(Part(number=2), datetime.date(2026, 11, 22))],
    ],
)
def test_what_a_tool_gives_comes_back_with_its_type(value: Any) -> None:
    uses = []

    @durable
    def look() -> Any:
        uses.append(1)
        return value

    first, again = twice(look)
    assert first is value
    assert (again, type(again), len(uses)) == (value, type(value), 1)


def test_what_no_record_makes_again_is_made_by_the_tool_again_with_the_same_key() -> None:
    class Strange:
        pass

    keys = []

    @durable
    def look() -> Strange:
        keys.append(idempotency_key())
        return Strange()

    first, again = twice(look)
    assert isinstance(again, Strange)
    assert again is not first
    assert keys[0] == keys[1]


def invalid() -> ValidationError:
    try:
        create_model("Asked", i=(int, ...), name=(str, Field(max_length=2)))(i="x", name="long")
    except ValidationError as error:
        return error
    raise AssertionError


class Gone(Exception):
    """Of a class that is found no more where it was."""


Gone.__qualname__ = "Elsewhere"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Refused("no", 403), Refused),
        (ValueError("bad"), ValueError),
        (Odd(why="so"), Odd),
        (invalid(), ValidationError),
        (Gone("away"), ToolRaised),
    ],
)
def test_what_a_tool_raises_is_raised_again(error: Exception, kind: type[Exception]) -> None:
    uses = []

    @durable
    def look() -> None:
        uses.append(1)
        raise error

    first, again = twice(look)
    assert first is error
    assert isinstance(again, kind)
    assert (type(again).__qualname__, str(again), len(uses)) == (type(error).__qualname__, str(error), 1)
    assert vars(again) == vars(error)


def test_an_error_that_ended_the_attempt_is_not_replayed_in_the_next() -> None:
    # Given a tool that refuses twice: the first time its error is dealt with, the second time it ends the attempt
    uses: list[str] = []

    @durable
    def look(what: str) -> str:
        uses.append(what)
        if what == "dealt with" or uses.count(what) == 1:
            raise Refused("no", 403)
        return what

    def run(_: Any) -> str:
        with contextlib.suppress(Refused):
            look("dealt with")
        try:
            return look("fatal")
        except Refused as error:
            raise RuntimeError("it came of that") from error

    # When the task is tried again
    result = Crew(tasks=[Task(name="a", run=run, max_retries=1, retry_delay=0)]).kickoff()
    # Then only what ended it is done again
    assert result.raw == "fatal"
    assert uses == ["dealt with", "fatal", "fatal"]


@pytest.mark.parametrize(("name", "steps"), [("look", []), ("other", ["tool look"])])
def test_the_function_of_a_tool_of_its_name_is_one_step_with_it(name: str, steps: list[str]) -> None:
    # Given a decorated function that a framework uses as a tool, and another one that it calls
    @durable
    def helper(i: int) -> int:
        return i + 1

    @durable
    def look(i: int) -> int:
        return helper(i)

    use = recorded(lambda arguments: look(**json.loads(arguments)), lambda arguments: Use(name, arguments))

    def run(_: Any) -> str:
        return str([use('{"i": 1}'), look(1)])

    # When it is used, once by the framework and once by itself
    counted: list[str] = []
    step = Journal.step

    def counting(self: Journal, named: str, *args: Any, **kwargs: Any) -> Any:
        counted.append(named)
        return step(self, named, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "step", counting)
        assert Crew(tasks=[Task(name="a", run=run)]).kickoff().raw == "[2, 2]"
    # Then the tool is a step, what it calls is another one, and so are calls outside of it
    assert counted == [f"tool {name}", *steps, "tool helper", "tool look", "tool helper"]


def in_account(work: Callable[[], Any]) -> list[str]:
    """The steps of a task that did its work, of those that count."""
    counted: list[str] = []
    step = Journal.step

    def counting(self: Journal, named: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("counted", True):
            counted.append(named)
        return step(self, named, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "step", counting)
        Crew(tasks=[Task(name="a", run=lambda _: str(work()))]).kickoff()
    return counted


@durable
def look(i: int) -> int:
    return look(i - 1) if i > 1 else i


@durable
async def alook(i: int) -> int:
    return i


class Shelf:
    @durable
    def look(self, i: int) -> int:
        return i


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def swapped(i: int) -> Any:
        return fn(i + 0)

    return swapped


FOUND = ["tool search"]


@pytest.mark.parametrize(
    ("called", "i", "steps"),
    [
        (look, 1, FOUND),
        (look, 2, [*FOUND, "tool look"]),  # what it calls itself with other arguments
        (functools.partial(look, 1), None, FOUND),
        (functools.partial(functools.partial(look), 1), None, FOUND),
        (Shelf().look, 1, FOUND),
        (validate_call(look), 1, FOUND),
        (recorded(validate_call(look), lambda i: None), 1, FOUND),
        (decorated(look), 1, [*FOUND, "tool look"]),
        (functools.partial(decorated(look), 1), None, [*FOUND, "tool look"]),
        (decorated(validate_call(look)), 1, [*FOUND, "tool look"]),
        (lambda i: look(i), 1, [*FOUND, "tool look"]),
        (lambda i: look(i) + look(i), 1, [*FOUND, "tool look", "tool look"]),
        (lambda i: Shelf().look(i), 1, [*FOUND, "tool look"]),
    ],
)
def test_the_function_of_a_tool_of_another_name_is_counted_with_it(
    called: Any, i: int | None, steps: list[str]
) -> None:
    given = () if i is None else (i,)
    use = recorded(lambda: called(*given), lambda: Use("search", list(given), (), called))
    assert in_account(use) == steps


def test_a_function_that_several_tools_share_is_counted_with_those_that_call_it_themselves() -> None:
    # Given a function that one tool is made of, another's code calls, and a third one has beside its own
    search = recorded(lambda i: look(i), lambda i: Use("search", i, (), look))

    def helped(i: int) -> int:
        return int(look(i) + search(i))

    other = recorded(helped, lambda i: Use("other", i, (), helped))
    unknown = recorded(lambda i: look(i), lambda i: Use("unknown", i))
    # When all are used
    counted = in_account(lambda: [other(1), search(1), unknown(1), look(1)])
    # Then it is counted wherever it is not a tool's own function
    found = ["tool other", "tool look", "tool search", "tool search", "tool unknown", "tool look", "tool look"]
    assert counted == found


def test_a_coroutine_of_a_tool_of_another_name_is_counted_with_it() -> None:
    async def use(i: int) -> int:
        return await alook(i) + await alook(i)

    search = recorded(use, lambda i: Use("search", i, (), alook))
    assert in_account(lambda: asyncio.run(search(1))) == ["tool search", "tool alook"]


def test_a_function_that_is_counted_with_its_tool_is_not_called_again_where_the_tool_is_used_again() -> None:
    # Given a tool whose framework makes of what its function gave what cannot be recorded
    class Strange:
        pass

    uses: list[int] = []

    @durable
    def book(i: int) -> int:
        uses.append(i)
        return i

    def use(i: int) -> Strange:
        made.append(book(i))
        return Strange()

    made: list[int] = []
    search = recorded(use, lambda i: Use("search", i, (), book))
    # When its task is done again
    twice(lambda: search(1))
    # Then the tool was used again, and what its function has done was not done again
    assert (made, uses) == ([1, 1], [1])


def test_what_ctx_tool_wraps_is_one_step_with_its_tool_or_decorator_and_has_a_key_of_its_own() -> None:
    # Given a function that ctx.tool wraps, alone, under a framework's tool of its name, and over @durable
    keys: list[str] = []

    def look(i: int) -> int:
        keys.append(idempotency_key())
        return i

    counted: list[str] = []
    step = Journal.step

    def counting(self: Journal, named: str, *args: Any, **kwargs: Any) -> Any:
        counted.append(named)
        return step(self, named, *args, **kwargs)

    def run(ctx: Any) -> str:
        wrapped = ctx.tool(look)
        use = recorded(lambda i: wrapped(i), lambda i: Use("look", i))
        return str([wrapped(1), wrapped(1), use(1), ctx.tool(durable(look))(1), durable(wrapped)(1)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "step", counting)
        assert Crew(tasks=[Task(name="a", run=run)]).kickoff().raw == "[1, 1, 1, 1, 1]"
    # Then each call is one step, and in each there is another key
    assert counted == ["look", "look", "tool look", "tool look", "look"]
    assert len(set(keys)) == len(keys) == 5
    assert all(":" in key for key in keys)


def test_a_tool_that_a_framework_made_stays_what_it_is_and_other_objects_are_refused() -> None:
    @tool
    def look(i: int) -> int:
        """Looks."""
        return i

    assert durable(look) is look
    with pytest.raises(TypeError, match="a function: apply it before the decorator that made a Counter of it"):
        durable(Counter())


def test_uses_are_known_by_name_arguments_and_occurrence() -> None:
    uses = []

    @durable
    def look(at: int, *, near: str = "") -> int:
        uses.append((at, near))
        return len(uses)

    def work() -> list[int]:
        return [look(1), look(1), look(2, near="x"), look(2)]

    assert twice(work) == [[1, 2, 3, 4]] * 2
    assert uses == [(1, ""), (1, ""), (2, "x"), (2, "")]


def test_an_argument_that_is_no_value_counts_by_its_type() -> None:
    class Context:
        """A framework's, another one after a restart."""

    uses = []

    @durable
    def look(_: Context) -> int:
        uses.append(1)
        return 7

    assert twice(lambda: look(Context())) == [7, 7]
    assert len(uses) == 1


def test_outside_of_a_task_a_function_is_what_it_was() -> None:
    @durable
    def look(at: int) -> str:
        """Looks."""
        return f"part {at}"

    @durable
    async def later() -> int:
        return 1

    assert (look(1), look.__name__, look.__doc__) == ("part 1", "look", "Looks.")
    assert str(inspect.signature(look)) == "(at: int) -> str"
    assert inspect.iscoroutinefunction(later)


def test_a_frameworks_method_is_hooked_once_and_what_passes_is_not_recorded() -> None:
    class Waits(Exception):
        """Asks a person, say."""

    class Tool:
        name = "look"
        uses = 0

        def run(self, given: str) -> str:
            type(self).uses += 1
            if given == "wait":
                raise Waits
            return given

    def about(tool: Tool, given: str) -> tuple[str, Any] | None:
        return None if given == "always" else (tool.name, given)

    for _ in range(2):
        record_uses(Tool, "run", about, passing=(Waits,))
    record_uses(Tool, "gone", about)
    assert twice(lambda: Tool().run("a")) == ["a", "a"]
    assert Tool.uses == 1
    assert [type(one) for one in twice(lambda: Tool().run("wait"))] == [Waits, Waits]
    assert Tool.uses == 3
    assert twice(lambda: Tool().run("always")) == ["always", "always"]
    assert Tool.uses == 5
