"""What a ``step_callback`` is given."""

from dataclasses import dataclass


@dataclass
class AgentAction:
    """A tool was used: what the agent said to it, with what, and what came of it."""

    thought: str
    tool: str
    tool_input: str
    text: str
    result: str | None = None


@dataclass
class AgentFinish:
    """The agent gave its answer."""

    thought: str
    output: str
    text: str
