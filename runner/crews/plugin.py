"""The entry point of crews written with this package."""

import sys

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


PLUGIN = CrewPlugin()
