"""Agents at work: the loop of asking a model, using tools, and taking an answer."""

from runner.agents.delegating import delegation_tools
from runner.agents.job import Job, current
from runner.agents.loop import job_for, model_of, work
from runner.agents.steps import AgentAction, AgentFinish

__all__ = ["AgentAction", "AgentFinish", "Job", "current", "delegation_tools", "job_for", "model_of", "work"]
