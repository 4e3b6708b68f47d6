"""Runs programs, and agents without a crew, each as one task. CrewAI is imported when that is performed."""

import sys
from typing import Any

from runner.bundles.program import Program
from runner.core.plan import Plan, PlannedTask
from runner.engine.adapter import Adapter, ProgramAdapter
from runner.engine.work import Work

PROMPT = "prompt"  #: the input that an agent is asked


class CrewAIProgramAdapter(ProgramAdapter):
    """Performs a program of several kickoffs as one task."""

    name = "crewai-program"
    disposable = True

    def perform(self, crew: Program, work: Work) -> str:
        """Run the whole program and return its output as it is stored."""
        from runner.adapters.crewai import programs

        return programs.perform(crew, work)


CREWAI_PROGRAM = CrewAIProgramAdapter()


class CrewAIAgentAdapter(Adapter):
    """Plans and performs a single agent, as a program that kicks it off."""

    name = "crewai-agent"
    disposable = True

    def accepts(self, thing: object) -> bool:
        """Whether this is a CrewAI agent. Does not import CrewAI to find out."""
        return isinstance(thing, getattr(sys.modules.get("crewai"), "Agent", ()))

    def plan(self, crew: Any, name: str) -> Plan:  # noqa: ARG002 - the port's names
        """Build a plan of one task with the input ``prompt``."""
        return Plan(crew=name, tasks=(PlannedTask("agent"),), inputs=frozenset({PROMPT}))

    def perform(self, crew: Any, work: Work) -> str:
        """Kick the agent off with the prompt and return its output as it is stored."""
        from runner.adapters.crewai import programs

        return programs.perform(Program("agent", do=lambda: crew.kickoff(str(work.inputs[PROMPT]))), work)


CREWAI_AGENT = CrewAIAgentAdapter()
