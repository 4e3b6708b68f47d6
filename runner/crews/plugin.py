"""The entry point of crews written with this package."""

import sys
from types import ModuleType

from pydantic import BaseModel

from runner.engine.adapter import Adapter
from runner.engine.plugin import AdapterPlugin


class CrewPlugin(AdapterPlugin):
    """Crews of ours."""

    names = ("native",)
    relative_paths = False

    def adapter_of(self, thing: object) -> Adapter | None:
        """The plugin for crews. Where they were not imported, nothing is one."""
        if "runner.crews.crew" not in sys.modules:
            return None
        from runner.crews.adapter import NATIVE

        return NATIVE if NATIVE.accepts(thing) else None

    def factories(self, module: ModuleType) -> list[str]:
        """Classes with ``@CrewBase``, and functions of ``main.py`` and the like."""
        if "runner.crews.crew" not in sys.modules:
            return []
        from runner.bundles.factories import Kinds, factories
        from runner.crews.crew import Crew
        from runner.llm.llm import LLM, BaseLLM

        flows = [sys.modules["runner.flows.flow"].Flow] if "runner.flows.flow" in sys.modules else []
        return factories(module, Kinds(Crew, (BaseModel, *flows), (LLM, BaseLLM)))


PLUGIN = CrewPlugin()
