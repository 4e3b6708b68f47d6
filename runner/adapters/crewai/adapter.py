"""Runs crews of the real CrewAI: CrewAI itself performs each task, in a process of the run."""

from typing import Any

from pydantic import BaseModel

from runner.adapters.crewai import build, crew_plan, execute
from runner.core.plan import Plan
from runner.engine.adapter import Adapter
from runner.engine.work import Work
from runner.providers.config import CheckpointConfig


class CrewAIAdapter(Adapter):
    """Plans and performs crews of CrewAI: a crew, or a class with ``@CrewBase``."""

    name = "crewai"
    disposable = True
    """One object, one task: what a crew keeps of a kickoff would be there in the next."""

    def accepts(self, thing: object) -> bool:
        """Whether this is a CrewAI crew or a class with ``@CrewBase``."""
        return build.is_crew(thing)

    def plan(self, crew: Any, name: str) -> Plan:
        """Build the plan of the crew, under this name. Raises `BadCrew` where it cannot run."""
        return crew_plan.plan(build.made(crew), name)

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:
        """Translate the crew's own ``checkpoint=`` setting. None if it has none."""
        return crew_plan.checkpoints(build.made(crew))

    def source(self, crew: Any, key: str) -> object:
        """Return what this task's events name as their source: the task, or the crew for what runs before and after."""
        made = build.made(crew)
        return crew_plan.by_key(made).get(key, made)

    def output_files(self, crew: Any) -> dict[str, str]:
        """Return the ``output_file`` of each task that has one, by the task's key."""
        return {key: task.output_file for key, task in crew_plan.by_key(build.made(crew)).items() if task.output_file}

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:
        """Return the ``output_pydantic`` or ``output_json`` of each task that has one, by the task's key."""
        tasks = crew_plan.by_key(build.made(crew))
        found = {key: task.output_pydantic or task.output_json for key, task in tasks.items()}
        return {key: model for key, model in found.items() if model is not None}

    def perform(self, crew: Any, work: Work) -> str:
        """Perform one task by CrewAI's own kickoff and return its output as it is stored."""
        return execute.perform(build.made(crew), work)


CREWAI = CrewAIAdapter()
