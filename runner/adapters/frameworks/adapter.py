"""An agent, a team or a graph of another framework as a run of one task, whose code runs again on a restart.

Its model calls are recorded where they leave the process, its tool uses where the framework makes them.
"""

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from runner.adapters.frameworks import terminal
from runner.adapters.frameworks.framework import AgentFramework
from runner.core.plan import Plan
from runner.crews.adapter import NATIVE
from runner.crews.context import Task, TaskContext
from runner.crews.crew import Crew
from runner.engine.adapter import Adapter
from runner.engine.work import Work

KEPT = 32  #: agents of which the crews are kept, like bundles


class AgentAdapter(Adapter):
    """Performs agents of one framework, each as the one task of a crew of ours."""

    remembers = True

    def __init__(self, framework: AgentFramework) -> None:
        self.name = framework.name
        self._framework = framework
        self._crews: OrderedDict[int, tuple[object, Crew]] = OrderedDict()

    def accepts(self, thing: object) -> bool:
        """Agents of the framework."""
        return self._framework.is_agent(thing)

    def plan(self, crew: Any, name: str) -> Plan:
        """One task, which needs the inputs that the agent does, and takes what its framework says."""
        names = self.input_names(crew)
        return replace(NATIVE.plan(self._crew(crew), name), takes=tuple(names) if names else None)

    def perform(self, crew: Any, work: Work) -> str:
        """Run the agent."""
        work.journal.tool_observer = work.watch
        return NATIVE.perform(self._crew(crew), work)

    def input_kinds(self, crew: Any) -> dict[str, str]:
        """Return the types of the agent's inputs, as its framework declares them."""
        return self._framework.input_kinds(crew)

    def input_names(self, crew: Any) -> list[str] | None:
        """Return the names of the agent's inputs, as its framework declares them; None if any name is taken."""
        return self._framework.input_names(crew) or None

    def source(self, crew: Any, key: str) -> object:
        """The task."""
        return NATIVE.source(self._crew(crew), key)

    def _crew(self, agent: Any) -> Crew:
        found = self._crews.get(id(agent))
        if found is None or found[0] is not agent:
            found = self._crews[id(agent)] = agent, self._made(agent)
            while len(self._crews) > KEPT:
                self._crews.popitem(last=False)
        return found[1]

    def _made(self, agent: Any) -> Crew:
        framework = self._framework
        framework.watch()  # its agents may come of a package that the crew file imports, and not of the file

        def run(ctx: TaskContext) -> Any:
            terminal.attach(last_line=True)
            return framework.run(agent, ctx.inputs)

        needed = " ".join(f"{{{name}}}" for name in framework.inputs(agent))
        return Crew(name=framework.name_of(agent) or None, tasks=[Task(name="agent", description=needed, run=run)])
