"""What a task used: outputs by name, inputs by name, in whatever way it looks at them."""

import copy
import json
import re
from typing import Any

import pytest

from runner import Crew, Task
from runner.agents import Agent
from runner.core.output import TaskOutput
from runner.core.plan.dependencies import NOTHING, UNKNOWN, ReadSet, ReadTracker
from runner.crews.adapter import NATIVE
from runner.engine.work import Work
from runner.journal.cancellation.cancel_scope import CancelScope
from runner.journal.journal import Journal
from runner.journal.recorder import OneByOne
from runner.llm.llm import BaseLLM

GIVEN = {"topic": "owls", "n": 3}


class Model(BaseLLM):
    def call(self, messages: Any, tools: Any = None, **how: Any) -> str:
        return "an answer"


class Steps(OneByOne):
    def begin_step(self, *entry: Any, **about: Any) -> None: ...
    def mark_sent(self, entry: Any) -> None: ...

    def drop_step(self, *entry: Any, **about: Any) -> None: ...
    def record_step(self, step: str, value: str, **about: Any) -> None: ...


def used_by(last: Task, *before: Task) -> ReadSet:
    """What the last task of a crew uses."""
    crew = Crew(tasks=[*before, last])
    plan = NATIVE.plan(crew, "crew")
    key = plan.tasks[-1].key
    work = Work("r-1", "main", 1, key, plan, GIVEN, Journal({}, Steps(), CancelScope()),
                lambda keys: {k: TaskOutput(name=k, raw=k) for k in keys}, lambda kind, text: None)  # fmt: skip
    NATIVE.perform(crew, work)
    planned = plan.by_key[key]
    return work.uses.found(planned.context or (), lambda: len(plan.earlier(key)))


def task(name: str, run: Any = lambda ctx: "", **how: Any) -> Task:
    return Task(name=name, run=run, **how)


def inputs_of(look: Any) -> set[str]:
    return set(used_by(task("t", lambda ctx: str(look(ctx)))).inputs)


@pytest.mark.parametrize(
    "look",
    [
        lambda ctx: ctx.inputs["topic"],
        lambda ctx: ctx.inputs.get("topic"),
        lambda ctx: "topic" in ctx.inputs,
        lambda ctx: ctx.inputs.pop("topic"),
        lambda ctx: ctx.inputs.setdefault("topic", ""),
        lambda ctx: "%(topic)s" % ctx.inputs,  # noqa: UP031 - the older way to format is looked through as well
        lambda ctx: "{topic}".format_map(ctx.inputs),
    ],
)
def test_an_input_that_is_looked_up_is_used_and_the_others_are_not(look):
    assert inputs_of(look) == {"topic"}


def test_one_that_is_not_there_is_used_too():
    """A fork may add it."""
    assert inputs_of(lambda ctx: ctx.inputs.get("absent")) == {"absent"}


@pytest.mark.parametrize(
    "look",
    [
        lambda ctx: dict(ctx.inputs),
        lambda ctx: {**ctx.inputs},
        lambda ctx: (lambda **given: given)(**ctx.inputs),
        lambda ctx: json.dumps(ctx.inputs),
        lambda ctx: copy.deepcopy(ctx.inputs),
        lambda ctx: f"{ctx.inputs}",
        lambda ctx: list(ctx.inputs),
        lambda ctx: len(ctx.inputs),
        lambda ctx: ctx.inputs == {},
        lambda ctx: ctx.inputs != {},
        lambda ctx: list(reversed(ctx.inputs)),
        lambda ctx: ctx.inputs | {"more": 1},
        lambda ctx: {"more": 1} | ctx.inputs,
        lambda ctx: list(ctx.inputs.items()),
        lambda ctx: list(ctx.inputs.values()),
        lambda ctx: list(ctx.inputs.keys()),
        lambda ctx: ctx.inputs.copy(),
        lambda ctx: ctx.inputs.popitem(),
        lambda ctx: "handed on" if dict.get(ctx.inputs, "topic") else "",  # past our eyes
    ],
)
def test_all_are_used_where_it_cannot_be_told_which(look):
    assert inputs_of(look) == {"*"}


def test_what_is_given_is_what_the_inputs_hold():
    seen: dict[str, Any] = {}
    used_by(task("t", lambda ctx: seen.update(ctx.inputs) or json.dumps(ctx.inputs)))
    assert seen == GIVEN


def test_a_task_that_looks_at_nothing_used_nothing():
    assert used_by(task("b"), task("a")) == NOTHING


def test_inputs_in_the_texts_of_a_task_are_used():
    assert used_by(task("t", description="About {topic}", expected_output="{n} lines")).inputs == {"topic", "n"}


def test_outputs_that_are_read_are_used():
    a, b, c = task("a"), task("b"), task("c")
    assert used_by(task("d", lambda ctx: ctx.outputs["b"].raw), a, b, c).tasks == {"b"}
    assert used_by(task("d", lambda ctx: "".join(ctx.outputs)), a, b, c) == NOTHING, "their names are the plan's"
    assert used_by(task("d", lambda ctx: ctx.context[0].raw), a, b, c).tasks == {"*"}, "by default it is all of them"
    assert used_by(task("d", lambda ctx: str(list(ctx.outputs.values()))), a, b, c).tasks == {"*"}


def test_a_declared_context_is_used_anyway_and_needs_no_word():
    a, b, c = task("a"), task("b"), task("c")
    assert used_by(task("d", lambda ctx: ctx.context[0].raw, context=[a, c]), a, b, c) == NOTHING
    assert used_by(task("d", lambda ctx: ctx.outputs["b"].raw, context=[a]), a, b, c).tasks == {"b"}


def test_an_agent_is_told_its_texts_and_its_context_also_when_it_goes_on_from_a_recorded_conversation():
    agent = Agent(role="an expert on {topic}", goal="", backstory="", llm=Model(model="m"))
    told = Task(name="t", description="Say {n} things", agent=agent)
    assert used_by(told, task("a"), task("b")) == ReadSet(frozenset("*"), frozenset(["topic", "n"]))


@pytest.mark.parametrize(
    ("inputs", "hint"), [({"topik": 1}, "did you mean 'topik'?"), ({"n": 1}, "there are: n"), ({}, "there are: none")]
)
def test_an_input_that_the_run_does_not_have(inputs, hint):
    found = ReadTracker().watch(inputs)
    with pytest.raises(KeyError, match=re.escape(f"the run has no input 'topic'; {hint}")):
        found["topic"]


def test_of_a_task_that_nobody_watched_everything_counts_as_used():
    assert ReadTracker().found((), lambda: 3) == UNKNOWN


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (NOTHING, ""),
        (ReadSet(frozenset(["b", "a"])), ',["a", "b"]'),
        (ReadSet(frozenset("*")), ',"*"'),
        (ReadSet(frozenset(), frozenset(["topic"])), ',[],["topic"]'),
        (UNKNOWN, ',"*","*"'),
    ],
)
def test_it_is_stored_as_little_as_tells_it(used, text):
    assert used.to_json() == text
    assert ReadSet.from_json(json.loads(f"[{text[1:]}]")) == used
