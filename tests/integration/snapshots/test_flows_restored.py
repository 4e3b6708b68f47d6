"""Flows restored: with which code, at the next start, on a fork, waiting for a person."""

import asyncio
from typing import Any

import pytest

from runner import CheckpointConfig, Crew, JsonProvider, Task
from runner.core.errors import BadCheckpoint, BadFlow, BadInput
from runner.flows import Flow, HumanFeedbackPending, and_, human_feedback, listen, start

from .flow_checkpoints import EACH, Once, Stops, Tally, each

# -- which code


def test_called_on_a_subclass_it_gives_the_subclass(where):
    class Base(Flow[Tally]):
        @start()
        def a(self):
            self.state.count += 1

    class Sub(Base):
        def more(self):
            return "more"

    Sub(checkpoint=each(where)).kickoff()
    restored = Sub.from_checkpoint(CheckpointConfig(restore_from=where))
    assert type(restored) is Sub
    assert isinstance(restored.state, Tally)
    assert (restored.more(), restored.state.count) == ("more", 1)
    found = Flow.from_checkpoint(CheckpointConfig(restore_from=where))
    assert type(found) is Sub


def test_without_code_the_data_is_there_and_kickoff_says_what_is_missing(where, without_code):
    class Gone(Flow[dict]):
        @start()
        def a(self):
            self.state["x"] = 1
            return "A"

    Gone(checkpoint=each(where)).kickoff()
    without_code()
    restored = Flow.from_checkpoint(CheckpointConfig(restore_from=where))
    assert restored.method_outputs == ["A"]
    assert restored.state["x"] == 1
    with pytest.raises(BadFlow, match=r"flow Gone of the checkpoint needs its code"):
        restored.kickoff()


def test_a_flow_that_is_given_goes_on_itself(where):
    crash = Once()

    class F(Flow[dict]):
        def __init__(self, client: str) -> None:
            super().__init__()
            self.client = client

        @start()
        def a(self):
            return "a"

        @listen(a)
        def b(self):
            crash()
            self.state["used"] = self.client

    flow = F("first")
    flow.checkpoint = each(where)
    with pytest.raises(Stops):
        flow.kickoff()
    with pytest.raises(BadCheckpoint, match="cannot be created without arguments"):
        F.from_checkpoint(CheckpointConfig(restore_from=where))
    flow = F("second")
    flow.kickoff(from_checkpoint=CheckpointConfig(restore_from=where))
    assert flow.state["used"] == "second"


def test_a_kickoff_that_a_subclass_overrides_is_called_on_what_is_restored_and_its_provider_may_use_asyncio(where):
    told: list[tuple[str, Any]] = []

    class Remote(JsonProvider):
        def from_checkpoint(self, location):
            asyncio.run(asyncio.sleep(0))
            return super().from_checkpoint(location)

    class F(Flow):
        def kickoff(self, *args, **given):
            told.append(("kickoff", given.get("from_checkpoint") is not None))
            return super().kickoff(*args, **given)

        async def kickoff_async(self, *args):
            told.append(("kickoff_async", args[2] is not None))
            return await super().kickoff_async(*args)

        @start()
        def a(self):
            return "a"

    F(checkpoint=each(where)).kickoff()
    told.clear()
    assert F().kickoff(from_checkpoint=CheckpointConfig(restore_from=where, provider=Remote())) == "a"
    assert told == [("kickoff", True), ("kickoff", False), ("kickoff_async", False)]


def test_another_flow_is_refused_by_name(where):
    class F(Flow):
        @start()
        def a(self): ...

    class Other(Flow):
        @start()
        def b(self): ...

    F(checkpoint=each(where)).kickoff()
    with pytest.raises(BadCheckpoint, match=r"flow F did a, which Other does not have"):
        Other().kickoff(from_checkpoint=CheckpointConfig(restore_from=where))


def test_a_state_that_no_longer_fits_says_so(where):
    class F(Flow[dict]):
        @start()
        def a(self):
            self.state["count"] = "many"

    F(checkpoint=each(where)).kickoff()

    class F(Flow[Tally]):
        @start()
        def a(self): ...

    with pytest.raises(BadFlow, match=r"does not fit Tally as it is now: Tally\.count"):
        F.from_checkpoint(CheckpointConfig(restore_from=where))


# -- the next start


def test_the_next_start_finds_what_a_failure_left_and_takes_it_up(where):
    ran: list[str] = []
    crash = Once()

    class F(Flow[Tally]):
        @start()
        def a(self):
            ran.append("a")
            self.state.count += 1

        @listen(a)
        def b(self):
            crash()
            ran.append("b")
            return self.state.count

    def go() -> Any:
        return F(checkpoint=each(where, restore_from=where)).kickoff()

    with pytest.raises(Stops):
        go()  # nothing is there: it begins
    assert go() == 1
    assert ran == ["a", "b"]
    assert go() == 1  # all is done: it begins anew
    assert ran == ["a", "b", "a", "b"]
    # The line of the one that was taken up is one line: each checkpoint's parent is the one before.
    infos = JsonProvider().checkpoints(where)
    assert [one.parent_id for one in infos] == [None, infos[0].id, None, infos[2].id]


def test_nothing_changes_without_a_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class F(Flow):
        @start()
        def a(self): ...

    F().kickoff()
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_are_given_again_do_not_undo_what_came_of_them(where):
    crash = Once()

    class F(Flow[Tally]):
        @start()
        def a(self):
            self.state.count += 1

        @listen(a)
        def b(self):
            crash()
            return self.state.count, self.state.log

    with pytest.raises(Stops):
        F(checkpoint=each(where)).kickoff(inputs={"count": 5})
    flow = F(checkpoint=each(where, restore_from=where))
    assert flow.kickoff(inputs={"count": 5, "log": ["new"]}) == (6, ["new"])


def test_inputs_are_laid_over_the_restored_state(where):
    crash = Once()

    class F(Flow[Tally]):
        @start()
        def a(self, crewai_trigger_payload=None):
            crash()
            return self.state.count, crewai_trigger_payload

    with pytest.raises(Stops):
        F(checkpoint=CheckpointConfig(location=where, on_events=["method_execution_failed"])).kickoff(
            inputs={"count": 1, "crewai_trigger_payload": "P"}
        )
    assert F().kickoff(inputs={"count": 7}, from_checkpoint=CheckpointConfig(restore_from=where)) == (7, "P")


# -- forks


def test_a_fork_has_an_id_and_a_branch_of_its_own(where):
    class F(Flow[Tally]):
        @start()
        def a(self):
            self.state.count += 1

        @listen(a)
        def b(self):
            self.state.count += 10

    original = F(checkpoint=each(where))
    original.kickoff()
    first = JsonProvider().checkpoints(where)[0]
    fork = F.fork(CheckpointConfig(restore_from=first.location, on_events=EACH), branch="try")
    assert fork.flow_id != original.flow_id
    fork.kickoff()
    assert (fork.state.count, original.state.count) == (11, 11)
    (beyond,) = JsonProvider().checkpoints(where, "try")
    assert beyond.parent_id == first.id
    assert len(JsonProvider().checkpoints(where, "main")) == 2


# -- pauses


class Review(Flow[Tally]):
    @start()
    @human_feedback("Good?", emit=["yes", "no"])
    def draft(self):
        self.state.count += 1
        return "text"

    @start()
    def beside(self):
        self.state.log.append("beside")

    @listen("yes")
    def publish(self, said):
        return "published", said.output, self.state.count, self.state.log


def test_a_flow_that_waits_is_answered_after_a_restore(where):
    config = CheckpointConfig(location=where, on_events=["flow_paused"])
    assert isinstance(Review(checkpoint=config).kickoff(), HumanFeedbackPending)
    restored = Review.from_checkpoint(CheckpointConfig(restore_from=where))
    assert restored.pending_feedback.message == "Good?"
    again = restored.kickoff()
    assert isinstance(again, HumanFeedbackPending)  # nobody answered yet
    assert restored.resume("yes") == ("published", "text", 1, ["beside"])


class Asks(Flow[dict]):
    checkpoint = None  # the test's

    @start()
    def one(self):
        return self.pause("first?") + self.pause("second?")

    @start()
    def two(self):
        return self.pause("third?")

    @listen(and_(one, two))
    def both(self, said):
        return "done"


def test_a_restored_flow_writes_checkpoints_when_its_class_says_so(where, monkeypatch):
    monkeypatch.setattr(
        Asks,
        "checkpoint",
        CheckpointConfig(location=where, on_events=["flow_paused", "method_execution_finished"], max_checkpoints=50),
    )
    Asks().kickoff()
    asked = []
    for method in ("one", "two", "one"):
        flow = Asks.from_checkpoint(CheckpointConfig(restore_from=where))  # as another process would
        assert flow.checkpoint.max_checkpoints == 50
        asked.append(flow.pending_feedback.message)
        said = flow.resume("x", method=method)
    assert (asked[0], asked[2]) == ("first?", "second?")
    assert said == "done"


def test_an_answer_that_is_no_label_leaves_a_restored_flow_waiting(where):
    config = CheckpointConfig(location=where, on_events=["flow_paused"])
    Review(checkpoint=config).kickoff()
    restored = Review.from_checkpoint(CheckpointConfig(restore_from=where))
    with pytest.raises(BadInput):
        restored.resume("perhaps")
    assert restored.resume("yes")[0] == "published"


# -- kickoffs inside of it


def test_a_flow_and_a_crew_inside_of_a_restored_flow_go_on(where):
    ran: list[str] = []
    crash = Once()

    class Inner(Flow[Tally]):
        checkpoint = each(where)

        @start()
        def first(self):
            ran.append("inner first")
            self.state.count += 1

        @listen(first)
        def second(self):
            crash()
            ran.append("inner second")
            return self.state.count

    class Outer(Flow[Tally]):
        checkpoint = each(where)

        @start()
        def begin(self):
            ran.append("outer begin")

        @listen(begin)
        def work(self):
            def task(name):
                def run(ctx):
                    ran.append(f"task {name}")
                    return name

                return Task(name=name, run=run)

            crew = Crew(tasks=[task("one"), task("two")], checkpoint=CheckpointConfig(location=where))
            return [crew.kickoff().raw, Inner().kickoff(inputs={"count": 5})]

    with pytest.raises(Stops):
        Outer().kickoff()
    restored = Outer.from_checkpoint(CheckpointConfig(restore_from=where))
    assert restored.kickoff() == ["two", 6]
    assert ran == ["outer begin", "task one", "task two", "inner first", "inner second"]
