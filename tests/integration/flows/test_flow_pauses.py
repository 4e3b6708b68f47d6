"""Flows that wait for a person: ``@human_feedback``, ``pause`` and ``ask``, and how an answer becomes a label."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from runner.core.errors import BadFlow, BadInput, Conflict
from runner.events import event_bus
from runner.flows import (
    Flow,
    HumanFeedbackPending,
    HumanFeedbackProvider,
    HumanFeedbackResult,
    human_feedback,
    listen,
    or_,
    start,
)
from runner.flows.feedback import PendingFeedbackContext, choose, named_in
from runner.testing import ModelServer


class Later:
    """A provider that tells somebody and does not wait."""

    def __init__(self) -> None:
        self.told: list[PendingFeedbackContext] = []

    def request_feedback(self, context: PendingFeedbackContext, flow: Any) -> str:
        self.told.append(context)
        raise HumanFeedbackPending(context, callback_info={"ticket": 7})


class Review(Flow[dict]):
    drafts = 0

    @start()
    @human_feedback("Good?", emit=["approved", "rejected"])
    def draft(self):
        Review.drafts += 1
        self.state["drafts"] = self.state.get("drafts", 0) + 1
        return {"title": "T"}

    @listen("approved")
    def publish(self, said):
        return ("published", said.output, said.feedback, said.outcome)

    @listen("rejected")
    def discard(self, said):
        return ("discarded", said.feedback)


@pytest.fixture(autouse=True)
def nobody_at_the_terminal():
    Review.drafts = 0
    with patch("runner.flows.execution.on_terminal", return_value=None):
        yield


def test_it_waits_and_goes_on_with_the_answer():
    flow = Review()
    pending = flow.kickoff()
    assert isinstance(pending, HumanFeedbackPending)
    assert isinstance(Later(), HumanFeedbackProvider)
    assert pending.context.message == "Good?"
    assert pending.context.method_output == {"title": "T"}
    assert pending.context.emit == ["approved", "rejected"]
    assert pending.context.flow_id == flow.flow_id
    assert flow.pending_feedback is pending.context
    assert flow.resume("Approved") == ("published", {"title": "T"}, "Approved", "approved")
    assert flow.pending_feedback is None
    assert flow.method_outputs[0] == {"title": "T"}
    assert (Review.drafts, flow.state["drafts"]) == (1, 1)  # not drafted again, not counted again


def test_an_answer_that_is_none_of_the_labels_is_refused_and_the_question_stands():
    flow = Review()
    flow.kickoff()
    with pytest.raises(BadInput, match=r"'hm' is not one of approved, rejected"):
        flow.resume("hm")
    assert flow.pending_feedback is not None
    assert flow.resume("rejected") == ("discarded", "rejected")
    with pytest.raises(Conflict, match="is not awaiting an answer"):
        flow.resume("approved")


def test_an_empty_answer_is_the_default():
    class WithDefault(Flow):
        @start()
        @human_feedback("Good?", emit=["yes", "no"], default_outcome="no")
        def draft(self): ...

        @listen(or_("yes", "no"))
        def end(self, said):
            return said.outcome

    flow = WithDefault()
    flow.kickoff()
    assert flow.resume("") == "no"
    flow = Review()
    flow.kickoff()
    assert flow.resume("")[0] == "published"


def test_without_labels_the_listeners_get_what_was_said():
    class F(Flow):
        @start()
        @human_feedback("What do you think?", metadata={"channel": "x"})
        def draft(self):
            return "text"

        @listen(draft)
        def end(self, said):
            return said

    flow = F()
    flow.kickoff()
    said = flow.resume("fine")
    assert isinstance(said, HumanFeedbackResult)
    assert (said.output, said.feedback, said.outcome, said.metadata) == ("text", "fine", None, {"channel": "x"})
    assert flow.last_human_feedback == said
    assert flow.human_feedback_history == [said]


def test_a_provider_is_told_and_may_wait_or_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("RUNNER_STATE_DIR", str(tmp_path))  # where flows that wait are kept
    later = Later()

    class Waits(Flow):
        @start()
        @human_feedback("Good?", provider=later)
        def draft(self):
            return 1

    flow = Waits()
    pending = flow.kickoff()
    assert pending.callback_info == {"ticket": 7}
    assert [context.method_name for context in later.told] == ["draft"]
    assert flow.resume("yes").feedback == "yes"
    assert len(later.told) == 1

    class Answers:
        async def request_feedback(self, context: Any, flow: Any) -> str:
            return "at once"

    class Goes(Flow):
        @start()
        @human_feedback("Good?", provider=Answers())
        async def draft(self):
            return 1

    assert Goes().kickoff().feedback == "at once"


def test_who_sits_at_the_terminal_is_asked_there():
    with patch("runner.flows.execution.on_terminal", return_value="approved") as asked:
        assert Review().kickoff()[0] == "published"
    assert "Good?" in asked.call_args[0][0]


def test_other_branches_go_on_while_one_waits():
    class F(Flow[dict]):
        @start()
        @human_feedback("Good?")
        def asks(self):
            return "a"

        @start()
        def works(self):
            self.state["worked"] = True

        @listen(works)
        def more(self):
            self.state["more"] = True

    flow = F()
    assert isinstance(flow.kickoff(), HumanFeedbackPending)
    assert flow.state["worked"] is flow.state["more"] is True
    flow.resume("ok")
    assert len(flow.method_outputs) == 3


def test_pause_inside_a_method():
    paid = []

    class F(Flow[dict]):
        @start()
        def begin(self):
            self.state["n"] = self.state.get("n", 0) + 1
            draft = self.step("draft", lambda: paid.append("draft") or "D")
            colour = self.pause("Which colour?")
            size = self.pause("Which size?")
            return (draft, colour, size, self.state["n"])

    flow = F()
    first = flow.kickoff()
    assert first.context.message == "Which colour?"
    second = flow.resume("blue")
    assert second.context.message == "Which size?"
    assert asyncio.run(flow.resume_async("big")) == ("D", "blue", "big", 1)
    assert paid == ["draft"]


def test_the_same_question_twice_is_two_questions():
    class F(Flow):
        @start()
        def begin(self):
            return [self.pause("?"), self.pause("?")]

    flow = F()
    flow.kickoff()
    flow.resume("a")
    assert flow.resume("b") == ["a", "b"]


def test_one_of_several_questions():
    class F(Flow):
        @start()
        def one(self):
            return self.pause("1?")

        @start()
        def other(self):
            return self.pause("2?")

    flow = F()
    flow.kickoff()
    still = flow.resume("second", method="other")
    assert still.context.method_name == "one"
    assert flow.method_outputs == ["second"]
    assert flow.resume("first") == "first"


def test_ask_asks_at_the_terminal_and_only_once():
    class F(Flow):
        @start(max_retries=1, retry_delay=0.0)
        def begin(self):
            said = self.ask("Name?")
            if not F.failed:
                F.failed = True
                raise OSError("afterwards")
            return said

    F.failed = False
    with patch("runner.flows.execution.on_terminal", return_value="Ada") as asked:
        assert F().kickoff() == "Ada"
    assert asked.call_count == 1


def test_steps_and_pauses_are_for_methods():
    with pytest.raises(RuntimeError, match=r"Review\.pause\(\) is for the methods"):
        Review().pause("?")


def test_events_of_a_pause():
    events: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on("*")(lambda source, event: events.append(event))
        flow = Review()
        flow.kickoff()
        flow.resume("approved")
        event_bus.flush()
    assert [event.type for event in events] == [
        "flow_created",
        "flow_started",
        "method_execution_started",
        "human_feedback_requested",
        "method_execution_paused",
        "flow_paused",
        "flow_started",
        "method_execution_started",
        "human_feedback_received",
        "method_execution_finished",
        "method_execution_started",
        "method_execution_finished",
        "flow_finished",
    ]
    assert events[4].started_event_id == events[2].event_id
    assert events[5].started_event_id == events[1].event_id


# -- from an answer to a label


class Says:
    def __init__(self, text: str) -> None:
        self.text, self.calls = text, 0

    def call(self, messages: Any) -> str:
        self.calls += 1
        return self.text


def test_own_words_first_then_the_model_then_the_words_in_it_then_the_default():
    labels = ["approved", "rejected", "needs work"]
    model = Says("Rejected.")
    assert choose(" APPROVED ", labels, model) == "approved"
    assert model.calls == 0
    assert choose("no way", labels, model) == "rejected"
    assert choose("this needs work, I think", labels) == "needs work"
    assert choose("dunno", labels, Says("what?"), "needs work") == "needs work"
    with pytest.raises(BadInput, match="is not one of"):
        choose("dunno", labels)


def test_labels_in_one_another():
    assert named_in("it is not approved", ["approved", "not approved"]) == "not approved"
    assert named_in("approved or rejected", ["approved", "rejected"]) is None


def test_a_question_as_json_and_back():
    context = PendingFeedbackContext("f", "F", "m", {"x": 1}, "?", ["a"], call="m#2", step="?#1")
    assert PendingFeedbackContext.from_dict(context.to_dict()) == context


@pytest.mark.parametrize(
    ("options", "message"),
    [({"default_outcome": "x"}, "requires emit"), ({"emit": ["a"], "default_outcome": "x"}, "must be one of")],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        human_feedback("?", **options)


def test_a_model_that_is_named_reads_the_answer(monkeypatch):
    with ModelServer("rejected") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)

        class Asks(Flow[dict]):
            @start()
            @human_feedback("Good?", emit=["approved", "rejected"], llm="openai/gpt-4o-mini")
            def draft(self):
                return "Owls."

        with patch("runner.flows.execution.on_terminal", return_value="throw it away"):
            flow = Asks()
            flow.kickoff()
        assert flow.last_human_feedback.outcome == "rejected"
        assert server.paid == 1
    with pytest.raises(BadFlow, match="llm is a model's name or an object with call"):
        human_feedback("?", llm=3)
