"""An agent: who does a task. The fields are CrewAI's."""

from runner.agent.core import Agent, Link

__all__ = ["Agent", "Link"]
