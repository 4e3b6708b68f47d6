"""The entry point of the CrewAI adapters. CrewAI itself is imported when a crew file imports it."""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.bundles.program import Program
from runner.bundles.run_dir import Home
from runner.engine.adapter import Adapter
from runner.engine.plugin import AdapterPlugin


class CrewAIPlugin(AdapterPlugin):
    """CrewAI's crews, its flows, functions that kick off several of them, and agents without a crew."""

    names = ("crewai", "crewai-flow", "crewai-program", "crewai-agent")
    framework = "crewai"
    modules = {"crewai": "crew-runner[crewai]", "crewai_tools": "crewai[tools]"}
    entries = ("run", "kickoff")  # what `crewai run` calls in a main.py
    scripts = ("kickoff", "run_crew", "run")  # as `crewai create` names them
    whose_error = "CrewAI says so; so does `crewai run`"
    own_models = "CrewAI calls the model that its own settings name"
    preloaded = ("crewai",)
    disposable = True
    data_crew = b"from runner.adapters.crewai import discovery\n\ncrew = discovery.from_json(__file__)\n"

    def adapter_of(self, thing: object) -> Adapter | None:
        """Return the adapter for this object: a crew's, a flow's, a program's or an agent's. None for anything else."""
        if isinstance(thing, Program) and (thing.adapter == "crewai-program" or (not thing.adapter and _is_imported())):
            from runner.adapters.crewai.program_adapter import CREWAI_PROGRAM

            return CREWAI_PROGRAM
        if not _is_imported():
            return None
        from runner.adapters.crewai.adapter import CREWAI
        from runner.adapters.crewai.flows import CREWAI_FLOW
        from runner.adapters.crewai.program_adapter import CREWAI_AGENT

        return next((one for one in (CREWAI, CREWAI_FLOW, CREWAI_AGENT) if one.accepts(thing)), None)

    def is_agent(self, thing: object) -> bool:
        """Whether this is a CrewAI agent."""
        adapter = self.adapter_of(thing)
        return adapter is not None and adapter.name == "crewai-agent"

    def is_flow(self, thing: object) -> bool:
        """Whether this is a CrewAI flow."""
        adapter = self.adapter_of(thing)
        return adapter is not None and adapter.name == "crewai-flow"

    def factories(self, module: ModuleType) -> list[str]:
        """Return the names of a module's functions and classes that create a crew."""
        if not _is_imported():
            return []
        from runner.adapters.crewai import discovery

        return discovery.factories(module)

    def install(self, module: str) -> str:
        """Say what to install for this module, or that CrewAI does not support this Python version."""
        if sys.version_info >= (3, 14):
            return f"CrewAI is not made for Python {sys.version_info.major}.{sys.version_info.minor}: use 3.13"
        return super().install(module)

    def imported(self) -> None:
        """Keep CrewAI's locks on this machine, and let no kickoff, event or question happen while a file is read."""
        if _is_imported():
            _setup().lock_here()
            _setup().watch()

    def quiet(self) -> None:
        """Switch off CrewAI's telemetry, its search for newer versions and its signal handlers."""
        _setup().quiet()

    def preload(self, name: str) -> None:
        """Import CrewAI, and the modules that most of its tasks import."""
        _setup().preload(name)

    def prepare(self, home: Home) -> None:
        """Point CrewAI's storage, home and locks to the run's folder."""
        _setup().prepare(home)

    def continues(self, name: str) -> bool:
        """Whether this process may perform the run's next task: only if a crew's task left it unchanged."""
        return name == "crewai" and bool(_setup().is_as_new())

    def may_share(self, crew: object, files: Iterable[Path]) -> bool:
        """Whether tasks of this crew may share a process with other runs: see `runner.adapters.crewai.sharing`."""
        from runner.adapters.crewai import build, sharing

        if not (build.is_crew(crew) and _setup().is_quiet()):
            return False
        return sharing.may_share(build.made(crew), files) and bool(_setup().is_as_new())

    def share(self, home: Home) -> None:
        """Prepare this process for tasks of several runs, each with its own storage and home in its context."""
        _setup().share(home)

    def prepare_shared_task(self, home: Home) -> None:
        """Point CrewAI's storage and home in this context to the run's folder."""
        _setup().prepare_shared_task(home)

    def is_unchanged(self) -> bool:
        """Whether no task has changed the state of this shared process."""
        return bool(_setup().is_unchanged())

    def untested(self) -> str | None:
        """Return a warning if the installed version of CrewAI is not one that was tested."""
        found: str | None = _setup().untested()
        return found


def _setup() -> Any:
    """The module that reaches into CrewAI and its processes: imported when it is needed."""
    from runner.adapters.crewai import process_setup

    return process_setup


def _is_imported() -> bool:
    return "crewai.crew" in sys.modules


PLUGIN = CrewAIPlugin()
