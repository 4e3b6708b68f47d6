"""Outputs of earlier tasks, fetched when they are read, and recorded as used."""

from collections.abc import Iterable, Mapping
from typing import Any

from crewai import Crew, Task
from crewai.utilities.i18n import get_i18n

from runner.adapters.crewai import values
from runner.core.output import TaskOutput as Stored
from runner.engine.work import Work


class PriorOutputs:
    """The outputs of the tasks before one. Reads count as use until ``over`` is set."""

    def __init__(self, crew: Crew, tasks: dict[str, Task], work: Work, inputs: Mapping[str, Any] | None) -> None:
        self._crew, self._tasks, self._work = crew, tasks, work
        self._have: dict[str, Stored] = dict(work.given)
        self._wanted: list[str] = []
        self.over = False
        if inputs:  # the texts of their outputs are those that they were done with
            for task in tasks.values():
                task.interpolate_inputs_and_add_conversation_history(dict(inputs))
            for agent in crew.agents:
                agent.interpolate_inputs(dict(inputs))

    def tasks(self, keys: Iterable[str]) -> list[Task]:
        """Return the tasks with these keys, with their outputs set."""
        self._wanted = list(keys)
        for key in self._wanted:
            self.output(key)
        return [self._tasks[key] for key in self._wanted]

    def output(self, key: str) -> Any:
        """Return the output of a task as a CrewAI object."""
        task = self._tasks[key]
        if task.output is None:
            task.output = values.given(task, self._agent(task), lambda: self._look(key))
        return task.output

    def _look(self, key: str) -> Stored:
        if not self.over:
            self._work.uses.task(key)
        if key not in self._have:
            missing = (
                [one for one in self._wanted or [key] if one not in self._have]
                if self.over or self._all_of_them()
                else [key]
            )
            self._have.update(self._work.fetch(missing))
        return self._have[key]

    def _all_of_them(self) -> bool:
        """Whether the task receives all earlier outputs, so that one read fetches them all."""
        return self._work.plan.by_key[self._work.key].context is None

    def _agent(self, task: Task) -> str:
        manager = self._crew.manager_agent
        doer = manager if manager is not None else task.agent
        if self._crew.process.value == "hierarchical" and manager is None:  # one that CrewAI makes
            return str(get_i18n(self._crew.prompt_file).retrieve("hierarchical_manager_agent", "role"))
        return str(doer.role) if doer is not None else ""
