"""``@human_feedback(learn=True)`` and the memory of a flow, in this process."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pydantic import BaseModel, Field, SecretStr

from runner import BaseLLM
from runner.core.errors import BadFlow, ModelError
from runner.flows import (
    Flow,
    HumanFeedbackPending,
    Memory,
    MemoryMatch,
    MemoryRecord,
    SQLiteFlowPersistence,
    human_feedback,
    listen,
    start,
)
from runner.flows.learning import Lessons, Reviewed


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_MODEL_NAME", "MODEL"):
        monkeypatch.delenv(name, raising=False)


class Model(BaseLLM):
    """Gives these answers, one after the other; raises what is an exception."""

    def __init__(self, *answers: Any) -> None:
        super().__init__("told")
        self.answers, self.asked = list(answers), list[tuple[str, Any]]()

    def call(self, messages: Any, *_: Any, response_model: Any = None, **__: Any) -> Any:
        self.asked.append((messages[-1]["content"], response_model))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Known:
    """A memory of the author's own: one lesson, and what is remembered."""

    def __init__(self, *lessons: str) -> None:
        self.lessons, self.queries, self.kept = lessons, list[Any](), list[Any]()

    def recall(self, query: str, **about: Any) -> list[MemoryMatch]:
        self.queries.append((query, about))
        return [MemoryMatch(record=MemoryRecord(content=one), score=1.0) for one in self.lessons]

    def remember_many(self, contents: list[str], **about: Any) -> None:
        self.kept.append((contents, about))


def _flow(llm: Any, output: Any = "a draft", **options: Any) -> Flow[Any]:
    class Writes(Flow):
        @start()
        @human_feedback("Good?", llm=llm, learn=True, **options)
        def draft(self) -> Any:
            return output

    return Writes()


def _kickoff(flow: Flow[Any], answer: str = "") -> Any:
    """What was shown."""
    shown = []

    def show(message: str, output: Any, metadata: Any = None, emit: Any = None, method_name: str = "") -> str:
        shown.append(output)
        return answer

    with patch.object(flow, "_request_human_feedback", side_effect=show):
        flow.kickoff()
    assert flow.last_human_feedback is not None
    assert flow.last_human_feedback.output == shown[0]
    return shown[0]


def test_what_a_person_says_changes_what_the_next_kickoff_shows(tmp_path: Path) -> None:
    model = Model(Lessons(lessons=["Cite sources.", " "]))
    assert _kickoff(_flow(model), "Where is that from?") == "a draft"
    assert "Where is that from?" in model.asked[0][0]
    assert "a draft" in model.asked[0][0]
    again = Model('```json\n{"improved_output": "a draft [1]"}\n```')
    flow = _flow(again)
    assert _kickoff(flow) == "a draft [1]"
    assert "- Cite sources." in again.asked[0][0]
    assert [one.content for one in flow.memory.records()] == ["Cite sources."]
    assert len(list((tmp_path / ".memory" / "Writes").iterdir())) == 1


def test_an_answer_after_a_pause_is_learnt_of_in_another_process(tmp_path: Path) -> None:
    class Later:
        def request_feedback(self, context: Any, flow: Any) -> str:
            raise HumanFeedbackPending(context)

    model = Model(RuntimeError("the model is away"), {"lessons": ["Lead with the result."]})

    class Writes(Flow):
        @start()
        @human_feedback("Good?", emit=["yes", "no"], llm=model, provider=Later(), learn=True, learn_strict=True)
        def draft(self) -> str:
            return "a draft"

        @listen("no")
        def end(self, said: Any) -> Any:
            return said.feedback

    place = SQLiteFlowPersistence(tmp_path / "flows.db")
    paused = Writes(persistence=place, memory=Known())
    assert isinstance(paused.kickoff(), HumanFeedbackPending)
    flow = Writes.from_pending(paused.flow_id, place, memory=(memory := Known()))
    with patch.object(Flow, "_collapse_to_outcome", return_value="no"):
        # A strict failure leaves the question standing
        with pytest.raises(RuntimeError, match="the model is away"):
            flow.resume("Say what came of it first")
        assert flow.pending_feedback is not None
        assert place.load_pending_feedback(flow.flow_id) is not None
        assert flow.resume("Say what came of it first") == "Say what came of it first"
    assert memory.kept == [(["Lead with the result."], {"source": "hitl"})]
    assert place.load_pending_feedback(flow.flow_id) is None


class Draft(BaseModel):
    title: str = Field(alias="headline")


class Hidden(BaseModel):
    title: str
    token: SecretStr = SecretStr("t0k")


@pytest.mark.parametrize(
    ("output", "answer", "shown"),
    [
        (Draft(headline="Owls"), '{"headline": "Barn owls"}', Draft(headline="Barn owls")),
        (Hidden(title="Owls"), None, Hidden(title="Owls")),
        ({"title": "Owls"}, None, {"title": "Owls"}),
        ("Owls", Reviewed(improved_output="Barn owls"), "Barn owls"),
        ("Owls", "no JSON", "Owls"),
    ],
    ids=["model", "model with a secret", "dict", "text", "an answer that cannot be read"],
)
def test_an_output_keeps_its_type_and_what_no_model_may_see(output: Any, answer: Any, shown: Any) -> None:
    model = Model(*([] if answer is None else [answer]))
    flow = _flow(model, output)
    flow.memory = Known("Say which owls.")
    assert _kickoff(flow) == shown
    assert len(model.asked) == (answer is not None)


def test_limits_sources_and_what_teaches_nothing() -> None:
    model = Model("{}", Reviewed(improved_output="better"))
    memory = Known("One.", "Two.")
    flow = _flow(model, emit=["yes", "no"], learn_source="desk", learn_limit=1)
    flow.memory = memory
    model.answers.pop(0)
    assert _kickoff(flow, "Yes") == "better"  # which is a label, and no model is asked of it
    assert "Two." not in model.asked[0][0]
    assert memory.queries == [("draft: a draft", {"source": "desk", "limit": 1})]
    assert memory.kept == []
    quiet = _flow(Model())
    quiet.memory = None
    assert _kickoff(quiet, "Never do that") == "a draft"


def test_what_fails_is_logged_or_fails_the_method(caplog: pytest.LogCaptureFixture) -> None:
    flow = _flow(Model(ModelError("away")))
    assert _kickoff(flow, "Cite sources") == "a draft"
    assert "nothing was learnt of the answer" in caplog.text
    strict = _flow(Model(ModelError("away")), learn_strict=True)
    strict.memory = Known("A rule.")
    with pytest.raises(ModelError, match="away"):
        _kickoff(strict)
    with pytest.raises(BadFlow, match=r"learn=True\) needs a model: give it llm=, or set OPENAI_MODEL_NAME"):
        _kickoff(_flow(None))
    with pytest.raises(ValueError, match="learn_limit must be at least 1"):
        human_feedback("Good?", learn=True, learn_limit=0)


def test_a_memory_finds_texts_by_their_words_and_keeps_each_once(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "kept", llm=Model('{"statements": ["Owls fly.", ""]}'))
    assert memory.recall("anything") == []
    first = memory.remember("Owls hunt at night", source="a", categories=["birds"], metadata={"page": 3})
    assert memory.remember(" Owls hunt at night ", source="a").id == first.id
    memory.remember_many(["Foxes hunt at dawn", ""], source="b")
    assert [one.record.content for one in memory.recall("when do foxes hunt?")] == [
        "Foxes hunt at dawn", "Owls hunt at night",
    ]  # fmt: skip
    assert [one.record for one in memory.recall("foxes", source="a")] == [first]
    assert [one.record for one in memory.recall("foxes", categories=["birds"])] == [first]
    assert len(memory.recall("hunt", limit=1)) == 1
    assert memory.extract_memories("a page on owls") == ["Owls fly."]
    (tmp_path / "kept" / "other.json").write_text("[]")
    assert len(memory.records()) == 2
    with pytest.raises(ValueError, match="nothing to remember"):
        memory.remember(" ")


def test_methods_remember_and_recall() -> None:
    class Remembers(Flow):
        @start()
        def first(self) -> None:
            self.remember("Owls hunt at night", source="field")
            self.remember(["Owls are quiet"])

        @listen(first)
        def second(self) -> list[str]:
            return [one.record.content for one in self.recall("quiet owls", limit=1)]

    flow = Remembers()
    assert flow.kickoff() == ["Owls are quiet"]
    with pytest.raises(ValueError, match=r"Remembers.recall\(\) needs a memory"):
        Remembers(memory=None).recall("owls")
