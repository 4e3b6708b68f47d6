"""Delegation: tools with which a manager, or an agent that may delegate, gives work to another agent.

The coworker's model calls are recorded under the tool call in the same journal, so each is paid for once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from runner.agents import Agent, conversation, loop, mcp
from runner.agents.agent_state import AgentState, current
from runner.agents.tools import BaseTool
from runner.core.errors import TaskError, one_line
from runner.core.idempotency import idempotency_key
from runner.core.output import TaskOutput
from runner.core.redaction import redact
from runner.engine.work import Conversation
from runner.events.bus import event_bus
from runner.events.work_events import (
    AgentExecutionCompletedEvent,
    AgentExecutionErrorEvent,
    AgentExecutionStartedEvent,
)

_EXPECTED = "your best answer, complete: whoever asked you sees nothing else of what you did"


class DelegateWorkToolSchema(BaseModel):
    """What work is given with."""

    task: str = Field(description="the task, with all that is to be done")
    context: str = Field(default="", description="all that the coworker has to know for it: they know nothing else")
    coworker: str = Field(description="the role of the coworker")


class AskQuestionToolSchema(BaseModel):
    """What a question is asked with."""

    question: str = Field(description="the question")
    context: str = Field(default="", description="all that the coworker has to know for it: they know nothing else")
    coworker: str = Field(description="the role of the coworker")


class _CoworkerTool(BaseTool):
    composed: ClassVar[bool] = True

    coworkers: list[Any] = Field(exclude=True, repr=False)
    fill: Callable[[str], str] = Field(exclude=True, repr=False)

    def _hand_over(self, coworker: str, request: str, context: str) -> str:
        state = current()
        if state is None:
            raise TaskError(f"{self.name!r} is for an agent at work on a task")
        agent, messages = self._find(coworker), Conversation()
        messages.say(
            conversation.introduce(agent, self.fill, state.journal),
            conversation.brief(request, _EXPECTED, [TaskOutput(raw=context)] if context else []),
        )
        with mcp.connections():
            inner = loop.state_for(
                agent,
                messages,
                state.journal,
                tools=[*agent.tools, *mcp.tools_for(agent.mcps, agent=agent, journal=state.journal)],
                task=state.task,
                origin=idempotency_key(),
                role=self.fill(agent.role),
            )
            with _at_work(inner, request):
                return loop.work(inner)

    def _find(self, name: str) -> Agent:
        wanted = _plain(name.strip("[]").split(",")[0] if name.startswith("[") else name)
        for agent in self.coworkers:
            if wanted in (_plain(agent.role), _plain(self.fill(agent.role))):
                return agent  # type: ignore[no-any-return]  # crews are above: their agents are untyped here
        there = ", ".join(repr(self.fill(agent.role)) for agent in self.coworkers)
        raise TaskError(f"there is no coworker {name!r}; there are: {there}")


class DelegateWorkTool(_CoworkerTool):
    """Lets a coworker do a piece of work."""

    name: str = "Delegate work to coworker"
    args_schema: Any = DelegateWorkToolSchema

    def _run(self, task: str, coworker: str, context: str = "") -> str:
        return self._hand_over(coworker, task, context)


class AskQuestionTool(_CoworkerTool):
    """Asks a coworker a question."""

    name: str = "Ask question to coworker"
    args_schema: Any = AskQuestionToolSchema

    def _run(self, question: str, coworker: str, context: str = "") -> str:
        return self._hand_over(coworker, question, context)


def delegation_tools(coworkers: Sequence[Agent], fill: Callable[[str], str] = str) -> list[BaseTool]:
    """Return the tools to delegate work to these agents and to ask them; ``fill`` puts the inputs into their roles."""
    who = "; ".join(
        f"{fill(agent.role)} ({fill(agent.goal)})" if agent.goal else fill(agent.role) for agent in coworkers
    )
    given: dict[str, Any] = {"coworkers": list(coworkers), "fill": fill}
    return [
        DelegateWorkTool(
            description=f"Have a coworker do a task, and receive what came of it. There are: {who}", **given
        ),
        AskQuestionTool(description=f"Ask a coworker a question, and receive the answer. There are: {who}", **given),
    ]


@contextmanager
def _at_work(state: AgentState, prompt: str) -> Iterator[None]:
    agent, about = state.agent, {"agent": state.agent, "task": state.task}
    event_bus.emit(agent, AgentExecutionStartedEvent(tools=list(state.tools.values()), task_prompt=prompt, **about))
    try:
        yield
    except BaseException as error:
        why = f"{type(error).__name__}: {redact(one_line(error), getattr(agent.llm, 'api_key', None))[:500]}"
        event_bus.emit(agent, AgentExecutionErrorEvent(error=why, **about))
        raise
    event_bus.emit(agent, AgentExecutionCompletedEvent(**about))


def _plain(role: str) -> str:
    """Normalize a role: models write it in any case, with quotes and spaces."""
    return " ".join(role.split()).strip("\"'` ").replace('"', "").casefold()
