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
    """Plans and performs agents, as a function that kicks one off."""

    name = "crewai-agent"
    disposable = True

    def accepts(self, thing: object) -> bool:
        """Agents of CrewAI's; never where CrewAI was not imported."""
        return isinstance(thing, getattr(sys.modules.get("crewai"), "Agent", ()))

    def plan(self, crew: Any, name: str) -> Plan:  # noqa: ARG002 - the port's names
        """One task, which needs a prompt."""
        return Plan(crew=name, tasks=(PlannedTask(KEY),), inputs=frozenset({PROMPT}))

    def perform(self, crew: Any, work: Work) -> str:
        """Kick it off with the prompt."""
        from runner.adapters.crewai import programs

        return programs.perform(Program(KEY, do=lambda: crew.kickoff(str(work.inputs[PROMPT]))), work)


CREWAI_AGENT = CrewAIAgentAdapter()
