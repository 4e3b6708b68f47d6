"""Crews of real CrewAI, as their files have them: each task is done by CrewAI itself, in a process of its own.

Nothing here imports CrewAI before it is needed: who has no crew of it does not pay for it.
"""

import sys
from typing import Any

from pydantic import BaseModel

from runner.config import CheckpointConfig
from runner.plan import Plan
from runner.work import Work


class CrewAIAdapter:
    """Plans and performs crews of CrewAI: a crew, or a class with ``@CrewBase``."""

    name = "crewai"
    disposable = True
    """One object, one task: what a crew keeps of a kickoff would be there in the next."""

    def accepts(self, thing: object) -> bool:
        """CrewAI's crews and classes of crews. Where nobody imported CrewAI, nothing is one."""
        if "crewai.crew" not in sys.modules:
            return False
        from runner.adapters.crewai import making

        return making.is_crew(thing)

    def plan(self, crew: Any, name: str) -> Plan:
        """The crew's plan. Raises `BadCrew`."""
        from runner.adapters.crewai import making, planned

        return planned.plan(making.made(crew), name)

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:
        """As ``checkpoint=`` says, which is CrewAI's own."""
        from runner.adapters.crewai import making, planned

        return planned.checkpoints(making.made(crew))

    def source(self, crew: Any, key: str) -> object:
        """The task; the crew for what is done before and after all tasks."""
        from runner.adapters.crewai import making, planned

        made = making.made(crew)
        return planned.by_key(made).get(key, made)

    def warm(self, crew: Any, key: str) -> None:
        """Nothing: CrewAI imports what it needs."""

    def retry(self, crew: Any, key: str) -> tuple[int, float]:  # noqa: ARG002 - the port's names
        """None: CrewAI itself asks an agent again when it fails."""
        return 0, 0.0

    def output_files(self, crew: Any) -> dict[str, str]:
        """The ``output_file`` of each task that has one."""
        from runner.adapters.crewai import making, planned

        return {key: task.output_file for key, task in planned.by_key(making.made(crew)).items() if task.output_file}

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:
        """The ``output_pydantic`` or ``output_json`` of each task that has one."""
        from runner.adapters.crewai import making, planned

        tasks = planned.by_key(making.made(crew))
        found = {key: task.output_pydantic or task.output_json for key, task in tasks.items()}
        return {key: model for key, model in found.items() if model is not None}

    def perform(self, crew: Any, work: Work) -> str:
        """Do the task by CrewAI's own kickoff."""
        from runner.adapters.crewai import making, performing

        return performing.perform(making.made(crew), work)


CREWAI = CrewAIAdapter()
