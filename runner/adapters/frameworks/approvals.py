"""Approvals that an agent asks a person for: the run waits for ``runner answer`` without occupying a worker.

The task stops there, restarts with an answer, and replays up to the same question, which is known by its words.
"""

import contextlib
import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from runner.core.context_value import ContextValue
from runner.core.errors import TaskError
from runner.journal.current_journal import current_journal

APPROVE, REJECT = "approve", "reject"

_asked_about: ContextVar[str] = ContextVar("runner_asked_about", default="")


class Decision(NamedTuple):
    """What a person decided of one use of a tool.

    ``reason`` is why not, "" if they gave none; ``given`` is what they gave with their consent, if the tool wants
    something.
    """

    approved: bool
    reason: str = ""
    given: Any = None


def decide(tool: str, arguments: Any, wanted: Any = None) -> Decision:
    """Ask whether a tool may be used with these arguments, a mapping or its JSON.

    If the tool ``wanted`` something, an answer in JSON of this form consents, and is what it gets. Raises
    `InputRequired` until a person has decided: the caller lets it pass.
    """
    question = f"May it use {tool}({shown(arguments)})?"
    if wanted is not None:
        question += f" And with what, for {shown(wanted)}?"
    about: dict[str, Any] = {"emit": [APPROVE, REJECT], "tool": tool}
    answer = _ask(question, about if wanted is None else {**about, "default_outcome": REJECT})
    if wanted is not None:
        with contextlib.suppress(ValueError):
            return Decision(approved=True, given=json.loads(answer))
    from runner.flows.feedback import choose

    label, _, reason = answer.partition(":")
    if label.strip().casefold() != REJECT and choose(answer, about["emit"], default=REJECT) == APPROVE:
        return Decision(approved=True, given=wanted)
    return Decision(approved=False, reason=reason.strip())


def elsewhere(tool: str, arguments: Any) -> str:
    """The question what a tool gave that runs outside of the agent."""
    return f"What does {tool}({shown(arguments)}) give?"


def ask(message: Any) -> Any:
    """Ask a person, in text or as JSON; return the answer, decoded if it is JSON. Raises `InputRequired` until then."""
    answer = ask_text(message)
    try:
        return json.loads(answer)
    except ValueError:
        return answer


def ask_text(message: Any, about: Mapping[str, Any] | None = None) -> str:
    """Ask a person, and return the answer as text whatever it looks like. ``about`` is shown with the question."""
    return str(_ask(message if isinstance(message, str) else shown(message), dict(about or {})))


def typed(prompt: str) -> str | None:
    """Answer ``input(prompt)`` through the run; None outside of a task."""
    return ask_line(prompt.strip()) if current_journal() is not None else None


def ask_line(prompt: str) -> str:
    """Ask a person for a line, as `input` does."""
    question, about = prompt or "input()", _asked_about.get()
    return ask_text(question if about in question else f"{question}\n{about}")


def asking_about(what: str) -> ContextValue[str]:
    """In here, who is asked for a line is shown this with the question, and answers that of this alone."""
    return ContextValue(_asked_about, what)


def _ask(question: str, about: dict[str, Any]) -> str:
    found = current_journal()
    if found is None:
        raise TaskError(f"it asks a person, but no run is there to wait for the answer: {question}")
    return found[0].answer(question, lambda _: None, about)


def shown(value: Any) -> str:
    """A value as JSON on one line, the same for the same value."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    return json.dumps(to_jsonable_python(value, fallback=str), ensure_ascii=False, sort_keys=True)
