"""Providers that ask people for a flow, and flows that wait for a person and are taken up by their id."""

import threading
from pathlib import Path
from typing import Any

import pytest

from runner.core.errors import BadInput
from runner.events import event_bus
from runner.flows import (
    Flow,
    HumanFeedbackPending,
    InputProvider,
    InputResponse,
    PendingFeedbackContext,
    SQLiteFlowPersistence,
    flow_config,
    human_feedback,
    listen,
    persist,
    start,
)
from runner.flows.feedback import choose


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of its own: states are kept in the working directory, and in the user's folder for state."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("RUNNER_STATE_DIR", str(tmp_path / "state"))


class Provider:
    """Gives answers, one after the other; raises what is an exception."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, Any]]()

    def request_input(self, message: str, flow: Any, metadata: dict[str, Any] | None = None) -> Any:
        self.asked.append((message, metadata))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer


class Asks(Flow):
    @start()
    def talk(self) -> list[Any]:
        first = self.ask("Who?", metadata={"channel": "#birds"})
        return [first, self.ask("And why?", timeout=30), self.ask("No?")]


def test_a_provider_answers_with_metadata_and_none_where_it_fails() -> None:
    provider = Provider("owls", InputResponse("they fly", {"by": "ann"}), ValueError("gone"))
    assert isinstance(provider, InputProvider)
    flow = Asks(input_provider=provider)
    events: list[Any] = []
    with event_bus.scoped_handlers():
        event_bus.on("flow_input_requested", "flow_input_received")(lambda source, event: events.append(event))
        assert flow.kickoff() == ["owls", "they fly", None]
        assert event_bus.flush(10)
    assert provider.asked == [("Who?", {"channel": "#birds"}), ("And why?", None), ("No?", None)]
    assert [one["response"] for one in flow.input_history] == ["owls", "they fly", None]
    assert flow.input_history[1]["response_metadata"] == {"by": "ann"}
    told = [(one.message, one.response, one.response_metadata) for one in events if one.type == "flow_input_received"]
    assert told == [("Who?", "owls", None), ("And why?", "they fly", {"by": "ann"}), ("No?", None, None)]


def test_a_provider_of_the_class_and_one_of_all_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Asks):
        input_provider = Provider("a", "b", "c")

    monkeypatch.setattr(flow_config, "input_provider", Provider("1", "2", "3"))
    assert Own().kickoff() == ["a", "b", "c"]
    assert Asks().kickoff() == ["1", "2", "3"]


def test_an_answer_that_takes_too_long_is_none() -> None:
    over = threading.Event()

    class Slow(Flow):
        @start()
        def talk(self) -> Any:
            return self.ask("Who?", timeout=0.01)

    assert Slow(input_provider=Provider(lambda: over.wait(20) and "late")).kickoff() is None
    over.set()


def test_what_was_answered_is_not_asked_again_by_a_retry() -> None:
    provider, tries = Provider("owls"), list[Any]()

    class Retries(Flow):
        @start(max_retries=1, retry_delay=0)
        def talk(self) -> Any:
            tries.append(self.ask("Who?"))
            if len(tries) == 1:
                raise ValueError("once")
            return tries

    assert Retries(input_provider=provider).kickoff() == ["owls", "owls"]
    assert len(provider.asked) == 1


def test_the_state_is_kept_before_a_person_is_asked(tmp_path: Path) -> None:
    place = SQLiteFlowPersistence(tmp_path / "states.db")
    seen: list[Any] = []

    class Keeps(Flow):
        @start()
        def talk(self) -> Any:
            self.state["topic"] = "owls"
            return self.ask("Who?")

    flow = Keeps(persistence=place, input_provider=Provider(lambda: seen.append(place.load_state(flow.flow_id))))
    flow.kickoff()
    assert seen[0]["topic"] == "owls"


class Later:
    def request_feedback(self, context: Any, flow: Any) -> str:
        raise HumanFeedbackPending(context, {"ticket": 7})


done: list[str] = []


class Report(Flow):
    @start()
    def collect(self) -> str:
        done.append("collect")
        self.state["words"] = 3
        return "notes"

    @listen(collect)
    @human_feedback("Good?", emit=["approved", "rejected"], provider=Later())
    def write(self, notes: str) -> str:
        done.append("write")
        self.state["text"] = notes.upper()
        return notes.upper()

    @listen("approved")
    def publish(self, said: Any) -> str:
        done.append("publish")
        return f"{said.output} is out: {said.feedback} ({self.state['words']})"


def test_a_flow_that_waits_is_taken_up_by_its_id() -> None:
    done.clear()
    waiting = Report().kickoff()
    assert isinstance(waiting, HumanFeedbackPending)
    assert waiting.callback_info == {"ticket": 7}
    with pytest.raises(ValueError, match="No pending feedback found for flow_id: nobody"):
        Report.from_pending("nobody")
    flow = Report.from_pending(waiting.context.flow_id)
    assert flow.pending_feedback is not None
    assert (flow.pending_feedback.message, flow.pending_feedback.method_output) == ("Good?", "NOTES")
    assert flow.resume("I approve this") == "NOTES is out: I approve this (3)"
    assert done == ["collect", "write", "publish"]  # no method twice
    with pytest.raises(ValueError, match="No pending feedback found"):
        Report.from_pending(waiting.context.flow_id)


def test_a_flow_that_waits_leaves_nothing_where_it_runs() -> None:
    Report().kickoff()
    assert not list(Path.cwd().iterdir())


def test_one_that_was_kept_by_an_older_version_is_found() -> None:
    flow_id = Report(persistence=SQLiteFlowPersistence()).kickoff().context.flow_id
    assert Report.from_pending(flow_id).resume("approved").startswith("NOTES is out")


def test_a_flow_that_cannot_be_kept_waits_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RUNNER_STATE_DIR", str(tmp_path / "file"))
    flow = Report()
    assert isinstance(flow.kickoff(), HumanFeedbackPending)
    assert "resume it here, or give it persistence=" in caplog.text
    assert flow.resume("approved") == "NOTES is out: approved (3)"


def test_a_refused_answer_leaves_it_waiting(tmp_path: Path) -> None:
    place = SQLiteFlowPersistence(tmp_path / "states.db")
    flow_id = Report(persistence=place).kickoff().context.flow_id
    with pytest.raises(BadInput, match="is not one of approved, rejected"):
        Report.from_pending(flow_id, place).resume("hm")
    assert Report.from_pending(flow_id, place).resume("Rejected.") == "NOTES"


@persist(SQLiteFlowPersistence("unused.db"))
class Simple(Flow):
    @start()
    @human_feedback("Good?")
    def write(self) -> str:
        raise AssertionError("it is done")

    @listen(write)
    def then(self, said: Any) -> str:
        return f"{said.output}: {said.feedback}, {self.state['n']}"


def test_what_crewai_kept_is_taken_up(tmp_path: Path) -> None:
    """It keeps the state and the question, and not what was done."""
    place = SQLiteFlowPersistence(tmp_path / "states.db")
    asked = PendingFeedbackContext("f1", "x.Simple", "write", method_output="text", message="Good?", llm="gpt-4o")
    place.save_pending_feedback("f1", asked, {"id": "f1", "n": 3})
    place.save_pending_feedback("f1", asked, {"id": "f1", "n": 4})
    assert Simple.from_pending("f1", place).resume("fine") == "text: fine, 4"
    assert place.load_pending_feedback("f1") is None


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("I approve this", "approved"), ("Approving!", "approved"), ("please revise it", "needs revision"),
        ("rejection", "rejected"), ("I do not approve", None), ("don't reject", None), ("approve or reject", None),
        ("no", None), ("app", None), ("I refuse to approve this", None), ("Do I have to approve this?", None),
        ("this is not approved", None), ("Stop before approving anything", None),
    ],
)  # fmt: skip
def test_free_text_is_matched_to_labels(answer: str, label: str | None) -> None:
    labels = ["approved", "rejected", "needs revision"]
    if label is None:
        with pytest.raises(BadInput):
            choose(answer, labels)
    else:
        assert choose(answer, labels) == label


def test_states_are_kept_with_a_log_that_readers_do_not_wait_for(tmp_path: Path) -> None:
    place = SQLiteFlowPersistence(tmp_path / "states.db")
    place.save_state("f", "m", {})
    assert (tmp_path / "states.db").read_bytes()[18:20] == b"\2\2"  # the format that says WAL
