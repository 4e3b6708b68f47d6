"""An agent at work: what it is told, how its model is asked, and what of the answer counts.

One call of the model, journaled: what was answered is not paid again, in no attempt and by no worker.
"""

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from runner.agent import Agent
from runner.errors import ModelError
from runner.events.bus import event_bus
from runner.events.call_events import LLMCallCompletedEvent, LLMCallFailedEvent, LLMCallStartedEvent
from runner.journal import Journal
from runner.llm import callable_model
from runner.output import TaskOutput
from runner.work import Conversation

Message = dict[str, Any]

_ANSWER = "Final Answer:"


def introduce(agent: Agent, fill: Callable[[str], str]) -> Message:
    """What the model is told of who it is."""
    lines = [f"You are {fill(agent.role)}."]
    if agent.backstory:
        lines.append(fill(agent.backstory))
    if agent.goal:
        lines.append(f"Your goal: {fill(agent.goal)}")
    return {"role": "system", "content": "\n".join(lines)}


def brief(description: str, expected_output: str, context: Sequence[TaskOutput]) -> Message:
    """What the model is told of its task."""
    parts = [description]
    if expected_output:
        parts.append(f"The answer should be: {expected_output}")
    if context:
        parts.append("You may build on this:\n\n" + "\n\n---\n\n".join(output.raw for output in context))
    return {"role": "user", "content": "\n\n".join(parts)}


def object_to(why: str) -> Message:
    """What the model is told when its answer did not pass."""
    return {"role": "user", "content": f"That answer cannot be taken: {why}\n\nGive a better one."}


def respond(said: str) -> Message:
    """What the model is told when a person wants another answer."""
    return {"role": "user", "content": f"A person read that answer and says: {said}\n\nAnswer again, as they want it."}


def as_messages(said: str | Sequence[Mapping[str, Any]]) -> list[Message]:
    """What a caller says, as messages."""
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    return [dict(message) for message in said]


def final(answer: str) -> str:
    """What of an answer counts: what comes after its last "Final Answer:", else all of it."""
    return answer.rpartition(_ANSWER)[2].strip() if _ANSWER in answer else answer.strip()


def answer(
    agent: Agent, conversation: Conversation, journal: Journal, *, task: Any = None, response_model: Any = None
) -> str:
    """The model's answer to the conversation so far, which it becomes part of."""
    if conversation.messages and conversation.messages[-1]["role"] == "assistant":
        return str(conversation.messages[-1]["content"])  # it was given, and nobody objected
    llm = agent.llm
    if not callable_model(llm):
        named = f"LLM({llm.model!r})" if hasattr(llm, "model") else "no model"
        raise ModelError(
            f"the agent {agent.role!r} has {named}, which cannot be called: "
            "give it a subclass of runner.llm.BaseLLM with a call() of its own"
        )
    watch = _Watch(agent, task, conversation)
    extra = _accepted(llm.call, {"from_task": task, "from_agent": agent, "response_model": response_model})

    def call(messages: list[Message]) -> str:
        return _text(llm.call(copy.deepcopy(messages), **extra))

    said = journal.step("model", call, (conversation.messages,), {}, watch)
    if not watch.heard:  # it was replayed
        conversation.say({"role": "assistant", "content": said})
    return str(said)


class _Watch:
    """Tells of the call; the answer is in the conversation before anybody hears that it came."""

    def __init__(self, agent: Agent, task: Any, conversation: Conversation) -> None:
        self._conversation = conversation
        self._about = {"model": str(getattr(agent.llm, "model", "")), "from_task": task, "from_agent": agent}
        self._source = agent.llm
        self.heard = False

    def began(self) -> None:
        event_bus.emit(self._source, LLMCallStartedEvent(messages=list(self._conversation.messages), **self._about))

    def ended(self, value: Any) -> None:
        self._conversation.say({"role": "assistant", "content": value})
        self.heard = True
        event_bus.emit(self._source, LLMCallCompletedEvent(response=value, **self._about))

    def failed(self, error: BaseException) -> None:
        event_bus.emit(self._source, LLMCallFailedEvent(error=str(error), **self._about))


def _accepted(function: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
    """What of ``offered`` a function takes by name."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return offered
    return {name: value for name, value in offered.items() if name in parameters}


def _text(answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    if isinstance(answer, BaseModel):
        return answer.model_dump_json()
    return "" if answer is None else json.dumps(to_jsonable_python(answer), ensure_ascii=False)
