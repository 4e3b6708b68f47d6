"""The entry point: which frameworks are known. What knows one of them is imported when a crew file imports it."""

import functools
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from runner.bundles.program import Program
from runner.engine.adapter import Adapter
from runner.engine.plugin import AdapterPlugin

if TYPE_CHECKING:
    from runner.adapters.frameworks.framework import AgentFramework

GROUP = "crew_runner.agents"


class FrameworksPlugin(AdapterPlugin):
    """Agents of the frameworks under the entry points of the group ``crew_runner.agents``.

    The name of an entry point is the module that users of the framework import; its value is an `AgentFramework`.
    """

    @functools.cached_property
    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=GROUP)}

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The modules by which frameworks are imported; adapters are called so."""
        return (*self._points, "program")

    @property
    def makers(self) -> tuple[str, ...]:  # type: ignore[override]
        """The same: agents are made with what is imported from there."""
        return tuple(self._points)

    @property
    def modules(self) -> dict[str, str]:  # type: ignore[override]
        """The same, with what installs them."""
        return {name: name.replace("_", "-") for name in self._points}

    def adapter_of(self, thing: object) -> Adapter | None:
        """The adapter of the framework whose agent it is, among those that were imported; that of a program."""
        if isinstance(thing, Program) and thing.adapter in ("", "program"):
            from runner.adapters.frameworks.program import PROGRAM

            return PROGRAM
        return next((self._adapter(one) for one in self._imported() if one.is_agent(thing)), None)

    def parts(self, thing: object) -> list[object]:
        """Those that an agent hands over to."""
        return next((one.parts(thing) for one in self._imported() if one.is_agent(thing)), [])

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

    @functools.cache  # noqa: B019
    def _adapter(self, framework: "AgentFramework") -> Adapter:
        from runner.adapters.frameworks.adapter import AgentAdapter

        return AgentAdapter(framework)


PLUGIN = FrameworksPlugin()
