"""An agent of CrewAI without a crew: a run of one task, that asks it the run's ``prompt``."""

import sys
from typing import Any

from pydantic import BaseModel

from runner.bundles.program import Program
from runner.core.plan import Plan, PlannedTask
from runner.engine.work import Work
from runner.providers.config import CheckpointConfig

KEY = "agent"  #: the one task
PROMPT = "prompt"  #: the input that it is asked


class CrewAIAgentAdapter:
    """Plans and performs agents, as a function that kicks one off."""

    name = "crewai-agent"
    disposable = True

    def accepts(self, thing: object) -> bool:
        """Agents of CrewAI's; never where CrewAI was not imported."""
        return isinstance(thing, getattr(sys.modules.get("crewai"), "Agent", ()))

    def plan(self, crew: Any, name: str) -> Plan:  # noqa: ARG002 - the port's names
        """One task, which needs a prompt."""
        return Plan(crew=name, tasks=(PlannedTask(KEY),), inputs=frozenset({PROMPT}))

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:  # noqa: ARG002 - the port's names
        """None but those of every run."""
        return None

    def source(self, crew: Any, key: str) -> object:  # noqa: ARG002 - the port's names
        """The agent."""
        return crew

    def warm(self, crew: Any, key: str) -> None:
        """Nothing: CrewAI imports what it needs."""

    def retry(self, crew: Any, key: str) -> tuple[int, float]:  # noqa: ARG002 - the port's names
        """None: CrewAI itself asks an agent again when it fails."""
        return 0, 0.0

    def output_files(self, crew: Any) -> dict[str, str]:  # noqa: ARG002 - the port's names
        """None."""
        return {}

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:  # noqa: ARG002 - the port's names
        """None: an agent answers in text."""
        return {}

    def perform(self, crew: Any, work: Work) -> str:
        """Kick it off with the prompt."""
        from runner.adapters.crewai import programs

        return programs.perform(Program(KEY, do=lambda: crew.kickoff(str(work.inputs[PROMPT]))), work)


CREWAI_AGENT = CrewAIAgentAdapter()
