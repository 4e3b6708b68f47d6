"""The entry point of the framework adapters. A framework's module is imported when a crew file imports it."""

import functools
import json
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from runner.bundles import frameworks, isolation, script
from runner.bundles.arguments import given
from runner.bundles.folders import scripts_of
from runner.bundles.program import Program
from runner.engine.adapter import Adapter
from runner.engine.plugin import AdapterPlugin

if TYPE_CHECKING:
    from runner.adapters.frameworks.framework import AgentFramework

GROUP = "crew_runner.agents"

_PACKAGES = {
    "pydantic_ai": "pydantic-ai",
    "agents": "openai-agents",
    "langgraph": "langgraph",
    "langchain": "langchain",
    "smolagents": "smolagents",
    "agno": "agno",
    "llama_index": "llama-index",
    "workflows": "llama-index-workflows",
    "autogen_agentchat": "autogen-agentchat",
    "agent_framework": "agent-framework",
    "google.adk": "google-adk",
    "strands": "strands-agents",
}
"""What installs the frameworks that we know, by the modules that their users import."""


class FrameworksPlugin(AdapterPlugin):
    """Agents of the `AgentFramework` entry points, whose names are the modules that users of the frameworks import."""

    word = "agent"

    @functools.cached_property
    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=GROUP)}

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]  # known when it is asked for
        """The modules by which frameworks are imported; adapters are called so."""
        return (*self._points, "program")

    @property
    def makers(self) -> tuple[str, ...]:  # type: ignore[override]  # known when it is asked for
        """The modules whose classes make agents: those of all frameworks."""
        return tuple(self._points)

    @property
    def modules(self) -> dict[str, str]:  # type: ignore[override]  # known when it is asked for
        """The modules of all frameworks with the packages that install them; "" where that is not known."""
        return {name: _PACKAGES.get(name, "") for name in self._points}

    def install(self, module: str) -> str:
        """The command, where it is known."""
        return super().install(module) if self.modules[module] else ""

    def adapter_of(self, thing: object) -> Adapter | None:
        """The adapter of the framework whose agent it is, among those that were imported; that of a program."""
        if isinstance(thing, Program) and thing.adapter in ("", "program"):
            from runner.adapters.frameworks.program import PROGRAM

            return PROGRAM
        return next((self._adapter(one) for one in self._imported() if one.is_agent(thing)), None)

    def parts(self, thing: object) -> list[object]:
        """Return the sub-agents of an agent."""
        found: list[object] = next((one.parts(thing) for one in self._imported() if one.is_agent(thing)), [])
        return found

    def named(self, folder: Path) -> dict[str, str]:
        """The graphs in LangGraph's ``langgraph.json``."""
        try:
            graphs = json.loads((folder / "langgraph.json").read_text("utf-8"))["graphs"]
            places = {name: one if isinstance(one, str) else one["path"] for name, one in graphs.items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):  # none, or not our file to complain of
            return {}
        return {name: str(place) for name, place in places.items()}

    def factories(self, module: ModuleType) -> list[str]:
        """Return all that the file does as a script, or the function of it that a script of its project calls.

        Only if it uses agents, and the run has no prompt for one.
        """
        if not self._imported():
            return []
        scripts = [Program(name).attr for name in scripts_of(module) if callable(getattr(module, name, None))]
        scripts = [Program(script.NAME).attr] if script.has_block(module) else scripts[:1]
        from runner.adapters.frameworks.framework import PROMPT

        if not scripts or PROMPT in (given.get() or {}):
            return []
        return scripts if frameworks.word_of(isolation.values_beside(module)) == self.word else []

    def imported(self) -> None:
        """Uses of its tools are steps from here on, and no agent is run while a file is read."""
        for one in self._imported():
            one.watch()

    def _imported(self) -> "list[AgentFramework]":
        found = dict.fromkeys(self._loaded(name) for name in self._points if name in sys.modules)
        return [one for one in found if one.module in sys.modules]

    @functools.cache  # noqa: B019 - there is one of this
    def _loaded(self, name: str) -> "AgentFramework":
        found: AgentFramework = self._points[name].load()
        return found

    @functools.cache  # noqa: B019 - one plugin lives as long as the process
    def _adapter(self, framework: "AgentFramework") -> Adapter:
        from runner.adapters.frameworks.adapter import AgentAdapter

        return AgentAdapter(framework)


def _typed(prompt: str) -> str | None:
    from runner.adapters.frameworks.approvals import typed

    return typed(prompt)


PLUGIN = FrameworksPlugin()
isolation.typed.append(_typed)
