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
    """The state of one agent at work: its conversation, model and tools.

    Attributes:
        tools: by the names that the model sees.
        origin: the prefix of the idempotency keys of its tool calls.
        role: the agent's name in the ledger.
        failed: how many earlier attempts failed whose calls are replayed now.
        usage: the tokens of the calls that were made in this process.
        chain: the hash chain of the conversation.
        from_hooks: the messages that hooks added.
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
        """Whether its crew streams the answers of models."""
        return bool(getattr(self.crew, "stream", False))

    @property
    def crew(self) -> Any:
        """The crew for which it is at work; None without one."""
        return getattr(self.task, "crew", None) or self.agent.crew

    @property
    def about(self) -> dict[str, Any]:
        """The fields that its events have in common."""
        return {"from_task": self.task, "from_agent": self.agent}


_current: ContextVar[AgentState | None] = ContextVar("runner_agent_at_work", default=None)


def current() -> AgentState | None:
    """Return the agent at work in this context, so that a tool knows which agent calls it."""
    return _current.get()


def at_work(state: AgentState) -> ContextValue[AgentState | None]:
    """Make this the agent at work in a context."""
    return ContextValue(_current, state)
