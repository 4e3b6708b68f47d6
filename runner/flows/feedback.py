"""Human feedback: the question, the answer, and how the answer becomes a label."""

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

from pydantic_core import to_jsonable_python

from runner.core.errors import BadInput
from runner.flows.structured import model_of
from runner.journal.human_answers import Answer

logger = logging.getLogger("runner.flows")


@dataclasses.dataclass
class HumanFeedbackResult:
    """A person's feedback on a method's output. ``outcome`` is the label, if there were any to choose from."""

    output: Any
    feedback: str
    outcome: str | None = None
    timestamp: datetime = dataclasses.field(default_factory=lambda: datetime.now(UTC))
    method_name: str = ""
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class PendingFeedbackContext:
    """A question to a person. ``call`` is the waiting execution, ``step`` the position of the answer in it.

    ``llm`` is the name of the model that reads the answer, ``flow`` the flow's data, if it was saved elsewhere.
    """

    flow_id: str
    flow_class: str
    method_name: str
    method_output: Any = None
    message: str = ""
    emit: list[str] | None = None
    default_outcome: str | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    requested_at: datetime = dataclasses.field(default_factory=lambda: datetime.now(UTC))
    call: str = ""
    step: str = ""
    llm: Any = None
    flow: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON; an output that is not JSON becomes its text."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found: dict[str, Any] = to_jsonable_python(data, fallback=str)
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PendingFeedbackContext":
        """The inverse of `to_dict`."""
        known = {field.name: data[field.name] for field in dataclasses.fields(cls) if field.name in data}
        if isinstance(known.get("requested_at"), str):
            known["requested_at"] = datetime.fromisoformat(known["requested_at"])
        return cls(**known)


class HumanFeedbackPending(Exception):
    """The flow waits for a person. ``kickoff`` returns it; a feedback provider raises it to make the flow wait."""

    def __init__(
        self,
        context: PendingFeedbackContext,
        callback_info: dict[str, Any] | None = None,
        message: str | None = None,
    ) -> None:
        self.context = context
        self.callback_info = callback_info or {}
        self.provided = False  #: whether a provider raised it
        super().__init__(message or f"{context.method_name} of flow {context.flow_id} waits: {context.message}")


@runtime_checkable
class HumanFeedbackProvider(Protocol):
    """Asks a person by other means than the terminal: ``@human_feedback(..., provider=...)``."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Any) -> str:
        """Return the answer, or a coroutine of it. With `HumanFeedbackPending` the flow waits for ``resume``."""


class AnswerRefused(BadInput):
    """The answer cannot be accepted; the question stays open."""

    def __init__(self, context: PendingFeedbackContext, message: str) -> None:
        super().__init__(message)
        self.context = context


def choose(answer: str, labels: Sequence[str], llm: Any = None, default: str | None = None) -> str:
    """Return the label of an answer: the one that it names, else the one that the model chooses, else the default.

    Raises `BadInput` if no label fits: an answer that does not clearly approve is not an approval.
    """
    exact = [label for label in labels if label.casefold() == answer.strip().casefold()]
    if exact:
        return exact[0]
    chosen = _ask_model(answer, labels, llm) or _not_denied(answer, labels) or meant_by(answer, labels) or default
    if chosen is None:
        raise BadInput(
            f"the answer {answer[:60]!r} is not one of {', '.join(labels)}: answer with one of them, "
            "or give @human_feedback a default_outcome or an llm"
        )
    return chosen


_APPROVES = frozenset({"approve", "approved", "accept", "accepted", "ok", "yes"})
_REJECTS = frozenset({"reject", "rejected", "refuse", "refused", "revise", "no"})


def verdict(
    text: str | None, approve: bool, reject: str | None, labels: Sequence[str], about: Mapping[str, Any]
) -> Answer:
    """Return a person's answer as text: their words, the approval of what is shown, or its rejection with the reason.

    Raises `BadInput` if there is no answer, or several.
    """
    if (text is not None) + approve + (reject is not None) != 1:
        raise BadInput("give exactly one of --text TEXT, --approve and --reject WHY")
    if text is not None:
        return Answer(text)
    if not approve and not (reject or "").strip():
        raise BadInput("--reject needs a reason: the task gets it when it runs again")
    if labels:
        known = _APPROVES if approve else _REJECTS
        fitting = [label for label in labels if label.casefold() in known]
        if len(fitting) != 1:
            what = "approves" if approve else "rejects"
            raise BadInput(f"none of {', '.join(labels)} is known to mean '{what}': choose one with --text")
        return Answer(fitting[0] if approve else f"{fitting[0]}: {reject}", fitting[0])
    if about.get("method_output") is None:
        raise BadInput(
            f"nothing is shown that could be approved or rejected, it asks {about.get('message')!r}: use --text"
        )
    return Answer(reject or "")


def named_in(text: str, labels: Sequence[str]) -> str | None:
    """Return the one label that a text names; None if it names none, or several of which none contains the others."""
    found = [label for label in labels if label.casefold() in text.casefold()]
    longest = max(found, key=len, default=None)
    if longest is None or any(label.casefold() not in longest.casefold() for label in found):
        return None
    return longest


_DENIES = re.compile(
    r"\b(?:no|not|never|none|nor|neither|without|cannot|refuse\w*|den\w+)\b|n['\u2019]t\b", re.IGNORECASE
)
_AROUND = frozenset({"i", "we", "yes", "ok", "please", "this", "that", "it"})  #: of a word that is all of an answer
_STEM = 4  #: letters that a word and a label have at least in common at their beginning


def _not_denied(text: str, labels: Sequence[str]) -> str | None:
    """The label that a text names, unless the text contains a negation and the label does not."""
    named = named_in(text, labels)
    return None if named and _DENIES.search(text) and not _DENIES.search(named) else named


def meant_by(text: str, labels: Sequence[str]) -> str | None:
    """Return the label of which a text is an inflection ("I approve this": approved); None if it says more."""
    words = [word for word in re.findall(r"\w+", text.casefold()) if word not in _AROUND]
    if len(words) != 1 or len(words[0]) < _STEM:
        return None
    stem = _stem(words[0])
    found = [label for label in labels if any(one.startswith(stem) for one in re.findall(r"\w+", label.casefold()))]
    return found[0] if len(found) == 1 else None


def _stem(word: str) -> str:
    """A word without its inflection."""
    return re.sub(r"(?<=\w{4})(?:e|es|ed|ing|s|d|al|ion)$", "", word)


def _ask_model(answer: str, labels: Sequence[str], llm: Any) -> str | None:
    """The label that a model chooses for an answer; any other reply chooses none. Raises `ModelError`."""
    call = getattr(model_of(llm) if isinstance(llm, str) else llm, "call", None)
    if not callable(call):
        return None
    prompt = (
        "A person was asked for a decision and answered:\n\n"
        f"{answer}\n\nWhich one of these does the answer mean: {', '.join(labels)}?\n"
        "Reply with exactly that word and nothing else."
    )
    said = str(call([{"role": "user", "content": prompt}]))
    exact = [label for label in labels if label.casefold() == said.strip().casefold()]
    return exact[0] if exact else named_in(said, labels)
