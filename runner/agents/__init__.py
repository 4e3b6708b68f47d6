"""Agents: who does a task, and how it is done."""

from runner.agents.agent import Agent

__all__ = ["Agent"]
