"""Kickoffs inside of a task or a method: when that begins anew, what they had done is not done again."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from runner import Agent, Crew, Task
from runner.events import event_bus
from runner.flows import Flow, listen, start
from runner.llm.llm import BaseLLM


class Says(BaseLLM):
    def __init__(self, *answers: str) -> None:
        super().__init__(model="said")
        self.answers = list(answers)

    def call(self, messages: Any, tools: Any = None, **more: Any) -> str:
        return self.answers.pop(0)


@pytest.fixture
def done():
    return Counter()


@pytest.fixture
def inner(done):
    """A crew of two tasks, the second of which fails the first time, after a step."""

    def first(ctx):
        done["first"] += 1
        return {"n": ctx.inputs["n"]}

    def second(ctx):
        ctx.step("call", lambda: done.update(call=1))
        done["second"] += 1
        if done["second"] == 1:
            raise OSError("the first time")
        return f"{ctx.outputs['first']['n']} done"

    return lambda: Crew(tasks=[Task(name="first", run=first), Task(name="second", run=second)])


def test_a_crew_in_a_method_that_is_tried_again(done, inner):
    class F(Flow):
        @start(max_retries=1, retry_delay=0.0)
        def work(self):
            return inner().kickoff({"n": 7}).raw

    assert F().kickoff() == "7 done"
    assert done == {"first": 1, "call": 1, "second": 2}


def test_a_crew_in_a_task_that_is_tried_again(done, inner):
    outer = Crew(tasks=[Task(name="t", run=lambda ctx: inner().kickoff({"n": 7}).raw, max_retries=1, retry_delay=0.0)])
    assert outer.kickoff().raw == "7 done"
    assert done == {"first": 1, "call": 1, "second": 2}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_flow_in_a_task_that_is_tried_again(done, inner, is_async):
    """What its methods gave need not be JSON and is in no journal: they run again, but no step of theirs does."""

    class F(Flow):
        @start()
        def begin(self):
            done["begin"] += 1
            return self.step("look", lambda: done.update(look=1) or 7)

        @listen(begin)
        async def work(self, n):
            return (await inner().kickoff_async({"n": n})).raw

    def run(ctx):
        return asyncio.run(F().kickoff_async()) if is_async else F().kickoff()

    outer = Crew(tasks=[Task(name="t", run=run, max_retries=1, retry_delay=0.0)])
    assert outer.kickoff().raw == "7 done"
    assert done == {"begin": 2, "look": 1, "first": 1, "call": 1, "second": 2}


def test_two_levels(done, inner):
    class F(Flow):
        @start(max_retries=1, retry_delay=0.0)
        def work(self):
            return Crew(tasks=[Task(name="t", run=lambda ctx: inner().kickoff({"n": 7}).raw)]).kickoff().raw

    assert F().kickoff() == "7 done"
    assert done == {"first": 1, "call": 1, "second": 2}


def test_kickoffs_are_told_apart_by_their_inputs_and_their_order(done):
    def run(ctx):
        done[ctx.inputs["n"]] += 1
        return f"{ctx.inputs['n']} {done[ctx.inputs['n']]}"

    crew = Crew(tasks=[Task(name="t", run=run)])
    failed = []

    class F(Flow):
        @start(max_retries=1, retry_delay=0.0)
        def work(self):
            found = [crew.kickoff({"n": n}).raw for n in (1, 2, 1)]
            if not failed:
                failed.append(True)
                raise OSError
            return found

    assert F().kickoff() == ["1 1", "2 1", "1 2"]
    assert done == {1: 2, 2: 1}


def test_an_agent_in_a_method_is_not_asked_again(done):
    agent = Agent(role="r", goal="g", backstory="b", llm=Says("one", "two"))

    class F(Flow):
        @start(max_retries=1, retry_delay=0.0)
        def work(self):
            answer = agent.kickoff("what?").raw
            done["asked"] += 1
            if done["asked"] == 1:
                raise OSError
            return answer

        @listen(work)
        def again(self):
            return agent.kickoff("what?").raw

    flow = F()
    assert flow.kickoff() == "two"
    assert flow.method_outputs == ["one", "two"]


def test_events_of_a_crew_in_a_method_are_below_it(done, inner):
    done["second"] = 1
    events: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on("*")(lambda source, event: events.append(event))

        class F(Flow):
            @start()
            def work(self):
                return inner().kickoff({"n": 1}).raw

        F().kickoff()
    by_id = {event.event_id: event for event in events}
    crew = next(event for event in events if event.type == "crew_kickoff_started")
    task = next(event for event in events if event.type == "task_started")
    assert by_id[task.parent_event_id] is crew
    assert by_id[crew.parent_event_id].type == "method_execution_started"
    assert by_id[by_id[crew.parent_event_id].parent_event_id].type == "flow_started"
