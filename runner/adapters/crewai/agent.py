"""Runs a CrewAI agent without a crew, as a run of one task with the input ``prompt``."""

import sys
from typing import Any

from runner.bundles.program import Program
from runner.core.plan import Plan, PlannedTask
from runner.engine.adapter import Adapter
from runner.engine.work import Work

KEY = "agent"  #: the one task
PROMPT = "prompt"  #: the input that it is asked


class CrewAIAgentAdapter(Adapter):
    """Plans and performs a single agent, as a program that kicks it off."""

    name = "crewai-agent"
    disposable = True

    def accepts(self, thing: object) -> bool:
        """Whether this is a CrewAI agent. Does not import CrewAI to find out."""
        return isinstance(thing, getattr(sys.modules.get("crewai"), "Agent", ()))

    def plan(self, crew: Any, name: str) -> Plan:  # noqa: ARG002 - the port's names
        """Build a plan of one task with the input ``prompt``."""
        return Plan(crew=name, tasks=(PlannedTask(KEY),), inputs=frozenset({PROMPT}))

    def perform(self, crew: Any, work: Work) -> str:
        """Kick the agent off with the prompt and return its output as it is stored."""
        from runner.adapters.crewai import programs

        return programs.perform(Program(KEY, do=lambda: crew.kickoff(str(work.inputs[PROMPT]))), work)


CREWAI_AGENT = CrewAIAgentAdapter()
