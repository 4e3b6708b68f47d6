"""The arguments of a ``step_callback``."""

from dataclasses import dataclass


@dataclass
class AgentAction:
    """A tool call: the agent's text with it, its arguments and its result."""

    thought: str
    tool: str
    tool_input: str
    text: str
    result: str | None = None


@dataclass
class AgentFinish:
    """The agent's answer."""

    thought: str
    output: str
    text: str
