"""What turns a crew of commands into a plan, and performs its tasks."""

import subprocess

from crew_runner_shell import ShellCrew
from runner.core import output
from runner.core.errors import BadCrew, TaskError
from runner.core.plan import Plan, PlannedTask
from runner.engine.adapter import Adapter
from runner.engine.plugin import AdapterPlugin
from runner.engine.work import Work


class ShellAdapter(Adapter):
    """Plans and performs crews of commands."""

    name = "shell"

    def accepts(self, thing: object) -> bool:
        """Crews of commands."""
        return isinstance(thing, ShellCrew)

    def plan(self, crew: ShellCrew, name: str) -> Plan:
        """Each command after the one before it. Raises `BadCrew` for a crew without any."""
        if not crew.commands:
            raise BadCrew("the crew has no commands")
        names = list(crew.commands)
        after = [(), *((one,) for one in names)]
        return Plan(crew=name, tasks=tuple(PlannedTask(key, above) for key, above in zip(names, after, strict=False)))

    def perform(self, crew: ShellCrew, work: Work) -> str:
        """Run the command as a step, so that it is not run again when the task goes on elsewhere."""
        return output.dump(work.journal.step("command", _run, (crew.commands[work.key],), {}), None)


def _run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TaskError(f"{command!r} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


class ShellPlugin(AdapterPlugin):
    """The family of one adapter."""

    names = ("shell",)

    def adapter_of(self, thing: object) -> Adapter | None:
        """It, for its crews."""
        return ShellAdapter() if isinstance(thing, ShellCrew) else None


PLUGIN = ShellPlugin()
