"""Runs crews of the real CrewAI: CrewAI itself performs each task, in a process of the run.

Nothing here imports CrewAI before it is needed: who has no crew of it does not pay for it.
"""

import sys
from typing import Any

from pydantic import BaseModel

from runner.bundles import script
from runner.bundles.program import Program
from runner.core.plan import Plan, PlannedTask
from runner.engine.adapter import Adapter
from runner.engine.work import Work
from runner.providers.config import CheckpointConfig


class CrewAIAdapter(Adapter):
    """Plans and performs crews of CrewAI: a crew, or a class with ``@CrewBase``."""

    name = "crewai"
    disposable = True
    """One object, one task: what a crew keeps of a kickoff would be there in the next."""

    def accepts(self, thing: object) -> bool:
        """Whether this is a CrewAI crew or a class with ``@CrewBase``. Does not import CrewAI to find out."""
        if "crewai.crew" not in sys.modules:
            return False
        from runner.adapters.crewai import build

        return build.is_crew(thing)

    def plan(self, crew: Any, name: str) -> Plan:
        """Build the plan of the crew, under this name. Raises `BadCrew` where it cannot run."""
        from runner.adapters.crewai import build, crew_plan

        return crew_plan.plan(build.made(crew), name)

    def checkpoints(self, crew: Any) -> CheckpointConfig | None:
        """Translate the crew's own ``checkpoint=`` setting. None if it has none."""
        from runner.adapters.crewai import build, crew_plan

        return crew_plan.checkpoints(build.made(crew))

    def source(self, crew: Any, key: str) -> object:
        """Return the object that events of this task name as their source: the task, or the crew for what runs before
        and after all tasks.
        """
        from runner.adapters.crewai import build, crew_plan

        made = build.made(crew)
        return crew_plan.by_key(made).get(key, made)

    def output_files(self, crew: Any) -> dict[str, str]:
        """Return the ``output_file`` of each task that has one, by the task's key."""
        from runner.adapters.crewai import build, crew_plan

        return {key: task.output_file for key, task in crew_plan.by_key(build.made(crew)).items() if task.output_file}

    def models(self, crew: Any) -> dict[str, type[BaseModel]]:
        """Return the ``output_pydantic`` or ``output_json`` of each task that has one, by the task's key."""
        from runner.adapters.crewai import build, crew_plan

        tasks = crew_plan.by_key(build.made(crew))
        found = {key: task.output_pydantic or task.output_json for key, task in tasks.items()}
        return {key: model for key, model in found.items() if model is not None}

    def perform(self, crew: Any, work: Work) -> str:
        """Perform one task by CrewAI's own kickoff and return its output as it is stored."""
        from runner.adapters.crewai import build, execute

        return execute.perform(build.made(crew), work)


CREWAI = CrewAIAdapter()


class CrewAIProgramAdapter(Adapter):
    """Plans and performs a program with more than one kickoff (a function, a method, or a file run as a script) as one
    task.
    """

    name = "crewai-program"
    disposable = True

    def accepts(self, thing: object) -> bool:
        """Whether this is a `Program`."""
        return isinstance(thing, Program)

    def plan(self, crew: Program, name: str) -> Plan:
        """Build a plan of one task, named like the function. Its inputs are the arguments that it needs."""
        key = "main" if crew.name == script.NAME else crew.name
        return Plan(crew=name, tasks=(PlannedTask(key),), inputs=frozenset(crew.needs))

    def input_kinds(self, crew: Program) -> dict[str, str]:
        """Return the type of each argument, by name, as the function annotates it."""
        return dict(crew.kinds)

    def perform(self, crew: Program, work: Work) -> str:
        """Run the whole program and return its output as it is stored."""
        from runner.adapters.crewai import programs

        return programs.perform(crew, work)


CREWAI_PROGRAM = CrewAIProgramAdapter()
