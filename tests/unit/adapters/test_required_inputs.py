"""What a function reads of its argument whatever happens, told from its source."""

import contextlib
import functools
from typing import Any

import pytest

from runner.adapters.frameworks.required_inputs import attributes_read, keys_read


def at_once(state: Any) -> Any:
    """Has a line of its own for this."""
    near, _ = state.get("near"), "known" in state
    found = [word for word in state["words"] if state["word_of_each"]]
    return {**state, "topic": f"{state['topic']} {near} {found}"}


async def before_it_decides(state: Any) -> Any:
    if state["tries"] > 3 and state["not_always"]:
        return {"topic": state["in_one_case"]}
    return {"topic": state["in_the_other"]}


def written_first(state: Any) -> Any:
    state["topic"] = "owls"
    return state["topic"]


def handed_on(state: Any) -> Any:
    helper(state)
    return state["topic"]


def helper(state: Any) -> None:
    state.setdefault("topic", "owls")


def forgiven(state: Any) -> Any:
    with contextlib.suppress(KeyError):
        return state["topic"]
    return None


def changed_by_itself(state: Any) -> Any:
    state.update(topic="owls")
    return state["topic"]


def changed_in_one_case(state: Any) -> Any:
    state.get("near") or state.update(topic="owls")
    return state["topic"]


def changed_by_one_word(state: Any) -> Any:
    [state.setdefault(one, "owls") for one in ("topic",)]
    return state["topic"]


def changed_by_what_is_called_later(state: Any) -> Any:
    change = lambda: state.update(topic="owls")  # noqa: E731 - what it is about
    change()
    return state["topic"]


def said_in_one_case(state: Any) -> Any:
    assert state["tries"], state["why"]
    return state["topic"] if state["near"] else state["other"]


def a_generator(state: Any) -> Any:
    yield state["topic"]


@functools.wraps(at_once)
def wrapped(state: Any) -> Any:
    return at_once({"words": [], "topic": "", **state})


class Node:
    def work(self, state: Any) -> Any:
        return state["topic"]


one, two = (lambda state: state["one"]), (lambda state: state["two"])
alone = lambda state: state["tries"]  # noqa: E731 - as authors write nodes


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (at_once, ["words", "topic"]),
        (before_it_decides, ["tries"]),
        (written_first, []),
        (handed_on, []),
        (forgiven, []),
        (changed_by_itself, []),
        (changed_in_one_case, []),
        (changed_by_one_word, []),
        (changed_by_what_is_called_later, []),
        (said_in_one_case, ["tries", "near"]),
        (a_generator, []),
        (wrapped, []),
        (Node().work, ["topic"]),
        (alone, ["tries"]),
        (one, []),  # two of them stand in one line
        (functools.partial(at_once), []),
        (len, []),
        (None, []),
    ],
)
def test_only_what_is_read_whatever_happens_counts(function: Any, names: list[str]) -> None:
    assert keys_read(function) == names


class Flow:
    async def begin(self, ctx: Any, event: Any) -> Any:
        await ctx.store.set("topic", event.topic)
        near = event.get("near")
        return event.pages if near else event.other


def test_attributes_are_told_of_the_argument_that_is_named() -> None:
    assert attributes_read(Flow().begin, "event") == ["topic"]
    assert attributes_read(Flow().begin, "ctx") == ["store"]
