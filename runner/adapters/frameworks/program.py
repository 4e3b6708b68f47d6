"""Runs a function or file that runs agents itself as one task; its model and tool calls are recorded."""

import re
from typing import Any

from runner.adapters.frameworks import terminal
from runner.adapters.frameworks.framework import as_output
from runner.bundles import script
from runner.bundles.program import Program
from runner.core import output as outputs
from runner.core.class_names import Names
from runner.core.plain_text import of_class
from runner.core.plan.dependencies import EVERYTHING
from runner.engine.adapter import ProgramAdapter
from runner.engine.work import Work

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>$")  #: how the text of an object ends that has no text of its own


class AgentProgramAdapter(ProgramAdapter):
    """Performs programs that run agents."""

    name = "program"
    remembers = True

    def input_names(self, crew: Program) -> list[str] | None:
        """The arguments of the function. A script has none: it reads no inputs."""
        return [] if crew.name == script.NAME else None if crew.takes is None else list(crew.takes)

    def perform(self, crew: Program, work: Work) -> str:
        """Do all of it. The output is what it returns; what it printed, if that is nothing, or no JSON or text."""
        work.uses.input(EVERYTHING)
        work.journal.tool_observer = work.watch
        printed = terminal.attach()
        found = crew.run()
        said = _said(found, printed.getvalue().rstrip("\n"), work)
        output = outputs.typed_output(work.key, said, lambda: Names([]))
        return outputs.to_text(outputs.record(output))


def _said(returned: Any, printed: str, work: Work) -> Any:
    if returned is None:
        return printed
    said = as_output(returned)
    if said is not returned and isinstance(said, str) and _ADDRESS.search(said):
        work.note(
            "task_log", f"{work.key} returned {of_class(returned)}, which is not JSON: the result is what it printed"
        )
        return printed
    return said


PROGRAM = AgentProgramAdapter()
