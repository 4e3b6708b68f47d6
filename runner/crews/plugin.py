"""The entry point of crews written with this package."""

import sys
from types import ModuleType

from pydantic import BaseModel

from runner.engine.adapter import Adapter
from runner.engine.plugin import AdapterPlugin


class CrewPlugin(AdapterPlugin):
    """The plugin for native crews."""

    names = ("native",)
    relative_paths = False

    def adapter_of(self, thing: object) -> Adapter | None:
        """Return the adapter if this is a native crew. If crews were not imported, nothing can be one."""
        if "runner.crews.crew" not in sys.modules:
            return None
        from runner.crews.adapter import NATIVE

        return NATIVE if NATIVE.accepts(thing) else None

    def factories(self, module: ModuleType) -> list[str]:
        """Return the names of a module's functions and classes that create a crew."""
        if "runner.crews.crew" not in sys.modules:
            return []
        from runner.bundles.factories import Kinds, factories
        from runner.crews.crew import Crew
        from runner.llm.llm import LLM, BaseLLM

        flows = [sys.modules["runner.flows.flow"].Flow] if "runner.flows.flow" in sys.modules else []
        return factories(module, Kinds(Crew, (BaseModel, *flows), (LLM, BaseLLM)))


PLUGIN = CrewPlugin()
