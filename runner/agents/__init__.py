"""Agents: who does a task, and how it is done."""

from runner.agents.agent import Agent, Link

__all__ = ["Agent", "Link"]
