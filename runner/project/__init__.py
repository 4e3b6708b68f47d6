"""Crews as classes: ``@CrewBase``, whose methods make agents and tasks of what YAML files beside the class say."""

from runner.project.crew_base import CrewBase
from runner.project.decorators import (
    after_kickoff,
    agent,
    before_kickoff,
    cache_handler,
    callback,
    crew,
    llm,
    output_json,
    output_pydantic,
    task,
    tool,
)

__all__ = [
    "CrewBase",
    "after_kickoff",
    "agent",
    "before_kickoff",
    "cache_handler",
    "callback",
    "crew",
    "llm",
    "output_json",
    "output_pydantic",
    "task",
    "tool",
]
