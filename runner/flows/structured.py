"""Asks a model for structured output, outside of an agent."""

from typing import Any, TypeVar

from pydantic import BaseModel

from runner import llm as models
from runner.agents import structured_output
from runner.core.errors import BadFlow, ModelError
from runner.llm.llm import model_for

M = TypeVar("M", bound=BaseModel)


def model_of(llm: Any) -> Any:
    """The model: a name becomes one, and None is that of the environment, if it names one."""
    if llm is None:
        return model_for(None)
    return models.LLM(llm) if isinstance(llm, str) else llm


def needed(llm: Any, what: str) -> Any:
    """`model_of`. Raises `BadFlow` where there is none."""
    if (model := model_of(llm)) is None:
        raise BadFlow(f"{what} needs a model: give it llm=, or set OPENAI_MODEL_NAME")
    return model


def ask(llm: Any, form: type[M], system: str, text: str) -> M:
    """What a model answers, as an object of that form. Raises `ModelError`."""
    messages = [
        {"role": "system", "content": f"{system}\n\n{structured_output.wanted(form)}"},
        {"role": "user", "content": text},
    ]
    said = needed(llm, "this").call(messages, response_model=form)
    if isinstance(said, str):
        found, why = structured_output.read(said, form)
        if found is None:
            raise ModelError(f"the model's answer cannot be used: {why}")
        answer: M = found
        return answer
    return said if isinstance(said, form) else form.model_validate(said)
