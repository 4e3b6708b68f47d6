"""The state of an agent at work: everything that its loop needs."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from runner.agents import Agent
from runner.agents.tools import BaseTool
from runner.core.context_value import ContextValue
from runner.engine.work import Conversation
from runner.journal.journal import Journal
from runner.llm.llm import BaseLLM
from runner.llm.recording.conversation_hash import Chain


@dataclass(frozen=True)
class AgentState:
    """One conversation of one agent, and what it is to lead to.

    ``tools`` are by the names that the model is told. ``origin`` is what the idempotency keys of its tools begin with,
    ``role`` what the ledger calls the agent.
    ``failed`` is how often it failed before, by what is replayed now.
    ``usage`` gathers the tokens of the calls that were made here; ``chain`` is that of the conversation,
    ``from_hooks`` what hooks put into it.
    """

    agent: Agent
    model: BaseLLM
    conversation: Conversation
    journal: Journal
    tools: Mapping[str, BaseTool] = field(default_factory=dict)
    task: Any = None
    response_model: type[BaseModel] | None = None
    origin: str = ""
    role: str = ""
    callbacks: tuple[Callable[[Any], Any], ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    chain: Chain = field(default_factory=Chain)
    from_hooks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def streams(self) -> bool:
        """Whether the crew that it is done for has its models' answers streamed."""
        crew = getattr(self.task, "crew", None) or self.agent.crew
        return bool(getattr(crew, "stream", False))

    @property
    def about(self) -> dict[str, Any]:
        """What its events say of it."""
        return {"from_task": self.task, "from_agent": self.agent}


_current: ContextVar[AgentState | None] = ContextVar("runner_agent_at_work", default=None)


def current() -> AgentState | None:
    """The agent that is at work in this context: a tool sees for whom it is used."""
    return _current.get()


def at_work(state: AgentState) -> ContextValue[AgentState | None]:
    """In this context, it is."""
    return ContextValue(_current, state)
