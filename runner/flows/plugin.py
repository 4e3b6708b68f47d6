"""The entry point of flows written with this package."""

import sys

from runner.engine.adapter import Adapter
from runner.engine.plugin import AdapterPlugin


class FlowPlugin(AdapterPlugin):
    """Flows of ours."""

    names = ("flow",)
    relative_paths = False

    def adapter_of(self, thing: object) -> Adapter | None:
        """The plugin for flows. Where they were not imported, nothing is one."""
        if "runner.flows.flow" not in sys.modules:
            return None
        from runner.flows.adapter import FLOW

        return FLOW if FLOW.accepts(thing) else None

    def is_flow(self, thing: object) -> bool:
        """Whether it is one, or a class of them."""
        return self.adapter_of(thing) is not None


PLUGIN = FlowPlugin()
