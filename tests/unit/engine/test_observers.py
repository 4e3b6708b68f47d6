"""Observers hear of a task, and nothing that they do changes it."""

from types import SimpleNamespace

import pytest

from runner import Agent, BaseLLM, Crew, Task
from runner.core.ledger import STEP, Usage
from runner.engine import observers
from runner.engine.decisions import Release
from runner.engine.observers import Observer, Observers


class Heard(Observer):
    def __init__(self):
        self.heard = []

    def task_started(self, claim):
        self.heard.append(("started", claim))

    def step_recorded(self, claim, step, entry, usage):
        self.heard.append((step, entry.kind, usage))

    def task_ended(self, claim, decision, seconds):
        self.heard.append((type(decision).__name__, seconds))


class Raising(Observer):
    def task_started(self, claim):
        raise RuntimeError("no")

    task_ended = step_recorded = lambda *_: 1 / 0


class Recorder:
    def __init__(self):
        self.recorded = []

    can_wait = True
    begin_step = begin_steps = mark_sent = drop_step = place = staticmethod(lambda *_, **__: None)

    def record_step(self, step, value, **about):
        self.recorded.append(step)


def test_one_that_raises_disturbs_neither_the_task_nor_the_others(caplog):
    heard, recorder, claim = Heard(), Recorder(), SimpleNamespace()
    several = Observers((Raising(), heard))
    several.task_started(claim)
    several.steps(claim, recorder).record_step("0.a", "1", replayed=0, entry=STEP, usage=Usage(3, 1))
    several.task_ended(claim, Release(), 0.5)
    assert recorder.recorded == ["0.a"]
    assert heard.heard == [("started", claim), ("0.a", "step", Usage(3, 1)), ("Release", 0.5)]
    assert caplog.text.count("the exception is ignored") == 3


def test_a_recorder_is_itself_where_nobody_wants_to_hear_of_steps():
    recorder = Recorder()
    assert Observers((Observer(),)).steps(SimpleNamespace(), recorder) is recorder


def test_a_step_that_stands_for_no_entry_is_not_told():
    heard, recorder = Heard(), Recorder()
    Observers((heard,)).steps(SimpleNamespace(), recorder).record_step("1.b", "2", replayed=0, entry=None)
    assert (recorder.recorded, heard.heard) == (["1.b"], [])


@pytest.fixture
def heard(monkeypatch):
    """An observer that is installed."""
    found = Heard()
    monkeypatch.setattr(observers, "installed", lambda: (found,))
    return found


def test_the_executor_performs_a_kickoff_and_observers_hear_of_each_attempt(heard):
    def once_more(ctx):
        ctx.step("paid", int, 3)
        if ctx.attempt == 1:
            raise OSError("not yet")
        return "done"

    assert Crew(tasks=[Task(name="one", run=once_more, max_retries=1, retry_delay=0.0)]).kickoff().raw == "done"
    assert [told[0].partition("(")[0] for told in heard.heard] == ["started", "paid", "Retry", "started", "Commit"]
    assert [told[1].job.attempt for told in heard.heard if told[0] == "started"] == [1, 2]


def test_a_kickoff_inside_of_a_task_is_heard_of_as_steps_of_that(heard):
    def inner(ctx):
        return str(ctx.step("paid", int, 3))

    def outer(ctx):
        return Crew(tasks=[Task(name="inner", run=inner)]).kickoff().raw

    assert Crew(tasks=[Task(name="outer", run=outer)]).kickoff().raw == "3"
    tasks = [told[1].job.task for told in heard.heard if told[0] == "started"]
    assert tasks == ["outer"]
    assert [told[1] for told in heard.heard if len(told) == 3] == ["step"]  # what was paid; not its output


class Says(BaseLLM):
    def call(self, messages, tools=None, **options):
        return "fine"


def test_an_agents_kickoff_is_a_task_of_its_own_and_inside_of_a_task_steps_of_that(heard):
    agent = Agent(role="writer", llm=Says(model="says"))
    assert agent.kickoff("How is it?").raw == "fine"
    assert [told[0].partition("(")[0] for told in heard.heard] == ["started", "model", "Commit"]
    claim = heard.heard[0][1]
    assert (claim.adapter, claim.crew, claim.job.task) == ("agent", "writer", "kickoff")
    heard.heard.clear()
    assert Crew(tasks=[Task(name="outer", run=lambda ctx: agent.kickoff("Again?").raw)]).kickoff().raw == "fine"
    assert [told[1].job.task for told in heard.heard if told[0] == "started"] == ["outer"]
    assert [told[1] for told in heard.heard if len(told) == 3] == ["model"]


def test_steps_that_are_recorded_together_are_told_one_by_one(heard):
    def work(ctx):
        return str(sum(ctx.map(int, ["1", "2", "3"], at_once=1)))

    assert Crew(tasks=[Task(name="work", run=work)]).kickoff().raw == "6"
    assert [(told[0].partition("(")[0], told[1]) for told in heard.heard if len(told) == 3] == [("int", "step")] * 3
