"""What a scripted model answers: the text and the tool calls, how long it takes, and what goes wrong on the way."""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from runner.modelserver.request import ModelRequest
from runner.modelserver.schemas import instance_of


@dataclass(frozen=True)
class Call:
    """A tool that the model wants called. Arguments that are text go out as they are: broken JSON stays broken."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What the server does with one request.

    ``status`` of 400 and more is an error with ``text`` as its message. ``cut`` is the part of the answer (0 to 1)
    after which the connection breaks; ``malformed`` sends a body that is no JSON, ``body`` this one; ``usage`` are the
    tokens told.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    delay: float = 0.0  #: seconds before the first byte
    pace: float = 0.0  #: seconds between the pieces of a stream
    status: int = 200
    retry_after: float | str | None = None
    cut: float | None = None
    malformed: bool = False
    body: str | None = None
    usage: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.cut is not None and not 0 <= self.cut < 1:
            raise ValueError(f"cut is the part that is sent, from 0 to less than 1, not {self.cut!r}")
        if isinstance(self.calls, Call):
            object.__setattr__(self, "calls", (self.calls,))


When: TypeAlias = "str | Callable[[ModelRequest], object] | None"
Reply: TypeAlias = "Answer | Call | str | Sequence[Call]"
Script: TypeAlias = "Callable[[ModelRequest], Reply | None] | Iterable[Rule] | Reply | None"


def as_answer(reply: Reply) -> Answer:
    """A text says it, a call (or several) makes it, an answer is one."""
    if isinstance(reply, Answer):
        return reply
    if isinstance(reply, str):
        return Answer(reply)
    return Answer(calls=(reply,) if isinstance(reply, Call) else tuple(reply))


class Rule:
    """``answers`` for the requests that ``when`` fits: a text that occurs in the conversation, or a function.

    The n-th answer is for the n-th turn of a conversation, and the last for all turns after it, so the same
    conversation gets the same answers however often it is begun. With ``times`` the rule is used that often only,
    by whoever comes: for faults that pass.
    """

    def __init__(self, when: When, *answers: Reply, times: int | None = None) -> None:
        if not answers:
            raise ValueError("a rule needs an answer")
        self.when = when
        self.answers = [as_answer(answer) for answer in answers]
        self.times = times
        self._used = 0
        self._lock = threading.Lock()

    def answer(self, request: ModelRequest) -> Answer | None:
        """Return this rule's answer to the request; None if it does not apply or is used up."""
        fits = self.when is None or (self.when in request.text if isinstance(self.when, str) else self.when(request))
        if not fits:
            return None
        with self._lock:
            if self.times is not None and self._used >= self.times:
                return None
            self._used += 1
            turn = self._used - 1 if self.times is not None else request.turn
        return self.answers[min(turn, len(self.answers) - 1)]

    @classmethod
    def from_dict(cls, about: dict[str, Any]) -> "Rule":
        """A rule out of a JSON file: ``{"when": "owls", "answers": ["text", {"calls": [...]}, {"status": 429}]}``."""
        about = dict(about)
        answers = about.pop("answers", None) or [about.pop("answer", "")]
        when, times = about.pop("when", None), about.pop("times", None)
        if about:
            raise ValueError(f"unknown keys in a rule: {', '.join(sorted(about))}; known: when, answer, answers, times")
        return cls(when, *map(_answer_from, answers), times=times)


def _answer_from(about: Any) -> Answer:
    if isinstance(about, str):
        return Answer(about)
    known = {one.name for one in fields(Answer)}
    if not isinstance(about, dict) or set(about) - known:
        raise ValueError(f"an answer is a text or an object with some of {', '.join(sorted(known))}, not {about!r}")
    calls = tuple(Call(str(call["name"]), call.get("arguments", {})) for call in about.get("calls", ()))
    usage = about.get("usage")
    return Answer(**{**about, "calls": calls, "usage": tuple(usage) if usage else None})


def plainly(request: ModelRequest) -> Answer:
    """Answer as a server without a script: call a required tool, give JSON if asked for, else the request's digest."""
    if request.must_call:
        schema = request.tools.get(request.must_call, {})
        return Answer(calls=[Call(request.must_call, instance_of({"type": "object", **schema}))])
    if request.schema is not None:
        return Answer(json.dumps(instance_of(request.schema)))
    return Answer(f"answer {request.digest}")


def chooser(script: Script) -> Callable[[ModelRequest], Answer]:
    """The function that a script comes to. Where it has nothing to say, `plainly` does."""
    if script is None:
        return plainly
    if isinstance(script, (str, Answer, Call)):
        always = as_answer(script)
        return lambda _: always
    if callable(script):
        function = script

        def ask(request: ModelRequest) -> Answer:
            said = function(request)
            return plainly(request) if said is None else as_answer(said)

        return ask
    rules = [one if isinstance(one, Rule) else Rule(None, one) for one in script]

    def first(request: ModelRequest) -> Answer:
        for rule in rules:
            found = rule.answer(request)
            if found is not None:
                return found
        return plainly(request)

    return first
