"""Observers hear of a task, and nothing that they do changes it."""

from types import SimpleNamespace

from runner.core.ledger import STEP, Usage
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
    begin_step = leaves = drop_step = place = staticmethod(lambda *_, **__: None)

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
