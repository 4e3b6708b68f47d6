"""``@human_feedback(learn=True)``: feedback on a method's outputs improves later ones.

Recalling, asking a model and remembering are steps: a restarted method pays for none of them again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError

from runner.flows.definition import Learning
from runner.flows.structured import ask, needed

if TYPE_CHECKING:
    from runner.flows.execution import Execution

logger = logging.getLogger("runner.flows")


class Lessons(BaseModel):
    """What a person's answer teaches."""

    lessons: list[str] = Field(default_factory=list, description="the rules, a sentence each; none if there are none")


class Reviewed(BaseModel):
    """A text to which lessons were applied."""

    improved_output: str = Field(description="the whole text, revised")


def review(at: "Execution", output: Any) -> Any:
    """Return the output for a person, with the lessons applied, in its own type; or unchanged.

    Text is revised, and a pydantic model whose fields a model sees. Raises `BadFlow` without one to ask.
    """
    learning, memory, llm = _of(at)
    if learning is None:
        return output
    needed(llm, "@human_feedback(learn=True)")
    with _failing(at, learning, "what people said before could not be applied to the output"):
        if not (text := _whole(output)):
            return output
        limit = {} if learning.limit is None else {"limit": learning.limit}

        def recall(query: str) -> list[str]:
            return [str(one.record.content) for one in memory.recall(query, source=learning.source, **limit)]

        if lessons := at.journal.step("recall lessons", recall, (f"{at.method.name}: {text}",), {}):
            return _revised(llm, output, text, lessons[: learning.limit])
    return output


def learn(at: "Execution", output: Any, answer: str) -> None:
    """Remember the lessons of an answer. An answer that is only a label has none."""
    learning, memory, llm = _of(at)
    asked = at.method.feedback
    assert asked is not None
    if learning is None or not answer.strip() or answer.strip().casefold() in map(str.casefold, asked.emit):
        return
    with _failing(at, learning, "nothing was learnt of the answer"):

        def distil(answer: str) -> list[str]:
            text = f"{at.method.name} gave this:\n\n{_shown(output)}\n\nThe person said:\n\n{answer}"
            return [one.strip() for one in ask(llm, Lessons, _DISTIL, text).lessons if one.strip()]

        def remember(lessons: list[str]) -> None:
            memory.remember_many(lessons, source=learning.source)
            if callable(drain := getattr(memory, "drain_writes", None)):
                drain()  # one that writes in the background

        if lessons := at.journal.step("distil lessons", distil, (answer,), {}):
            at.journal.step("remember lessons", remember, (lessons,), {})


_REVIEW = (
    "A person is about to judge a text. Revise it by the rules that people gave for earlier ones, and change nothing "
    "that no rule asks for: its meaning and its form stay."
)
_DISTIL = (
    "A person was shown what a program gave, and said something of it. Write down the rules in it that would make "
    "later outputs of the same kind better: each general, each in one sentence. What concerns this output alone is "
    "no rule, and plain praise or approval has none."
)


def _of(at: "Execution") -> tuple[Learning | None, Any, Any]:
    """The method's learning options, memory and model, if it learns."""
    asked = at.method.feedback
    if asked is None or asked.learning is None or (memory := at.flow.memory) is None:
        return None, None, None
    return asked.learning, memory, asked.llm


def _revised(llm: Any, output: Any, text: str, lessons: list[str]) -> Any:
    rules = "\n".join(f"- {one}" for one in lessons)
    prompt = f"The rules:\n{rules}\n\nThe text:\n{text}"
    if isinstance(output, BaseModel):
        return ask(llm, type(output), _REVIEW, prompt)
    return ask(llm, Reviewed, _REVIEW, prompt).improved_output


def _whole(output: Any) -> str | None:
    """An output as a complete text; None if there is no such text, as for a model with a secret in it."""
    if isinstance(output, str):
        return output
    if not isinstance(output, BaseModel):
        return None
    text = output.model_dump_json(by_alias=True)
    try:
        return text if type(output).model_validate_json(text) == output else None
    except ValidationError:
        return None


def _shown(output: Any) -> str:
    return output.model_dump_json() if isinstance(output, BaseModel) else str(output)


@contextmanager
def _failing(at: "Execution", learning: Learning, what: str) -> Iterator[None]:
    """A failure in this context fails the method if it learns strictly, and is logged otherwise."""
    try:
        yield
    except Exception:
        if learning.strict:
            raise
        logger.warning("method %s of flow %s: %s", at.method.name, at.flow.flow_name, what, exc_info=True)
