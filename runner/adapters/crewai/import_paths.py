"""Import paths of CrewAI's: ``runner.state.checkpoint_config``, where CrewAI has ``crewai.state.checkpoint_config``.

So code for CrewAI's checkpoints, events and flows only replaces ``crewai`` by ``runner``. The modules named below have
no files: each gives the names of modules of ours.
"""

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

PATHS: dict[str, tuple[str, ...]] = {
    "agent": ("agents",),
    "agent.core": ("agents", "agents.agent"),
    "agents.agent_builder": (),
    "agents.agent_builder.base_agent": ("agents",),
    "crew": ("crews.crew",),
    "crews.crew_output": ("crews.crew",),
    "flow": ("flows",),
    "flow.async_feedback": ("flows",),
    "flow.async_feedback.types": ("flows",),
    "flow.dsl": ("flows",),
    "flow.flow": ("flows", "flows.flow"),
    "flow.flow_config": ("flows.input_provider",),
    "flow.human_feedback": ("flows", "flows.feedback", "flows.learning"),
    "flow.input_provider": ("flows.input_provider",),
    "flow.runtime": ("flows.flow", "flows"),
    "flow.persistence": ("flows.persistence",),
    "flow.persistence.decorators": ("flows.persistence",),
    "flow.persistence.base": ("flows.persistence",),
    "flow.persistence.sqlite": ("flows.persistence",),
    "hooks.decorators": ("hooks",),
    "hooks.dispatch": ("hooks", "hooks.registry"),
    "hooks.llm_hooks": ("hooks", "hooks.registry"),
    "hooks.tool_hooks": ("hooks", "hooks.registry"),
    "lite_agent": ("agents.agent", "core.output"),
    "lite_agent_output": ("core.output",),
    "llms": (),
    "llms.base_llm": ("llm", "hooks.registry"),
    "mcp": ("agents.mcp",),
    "memory": ("flows.memory",),
    "memory.types": ("flows.memory",),
    "memory.unified_memory": ("flows.memory",),
    "process": ("crews.crew",),
    "project.annotations": ("project",),
    "state": ("snapshots", "providers", "events.types"),
    "state.checkpoint_config": ("providers.config", "snapshots"),
    "state.checkpoint_listener": ("snapshots", "snapshots.writer"),
    "state.event_record": ("events.record",),
    "state.provider": (),
    "state.provider.core": ("providers.base",),
    "state.provider.json_provider": ("providers.json",),
    "state.provider.sqlite_provider": ("providers.sqlite",),
    "state.provider.utils": ("providers.detect",),
    "state.runtime": ("snapshots.runtime", "snapshots"),
    "events.base_event_listener": ("events.listener",),
    "events.base_events": ("events", "events.base"),
    "events.event_bus": ("events.bus",),
    "events.event_context": ("events", "events.scope"),
    "events.event_types": ("events",),
    "events.handler_graph": ("events.depends",),
    **{
        f"events.types.{kind}_events": ("events",)
        for kind in (
            *("agent", "checkpoint", "crew", "flow", "knowledge", "llm", "llm_guardrail", "logging", "mcp", "memory"),
            *("reasoning", "system", "task", "tool_usage", "a2a", "env", "hook", "observation", "skill"),
        )
    },
    "task": ("crews.context",),
    "tasks.conditional_task": ("crews.context",),
    "tasks.llm_guardrail": ("agents.llm_guardrail",),
    "tasks.task_output": ("core.output",),
    "tools": ("agents.tools",),
    "tools.base_tool": ("agents.tools",),
    "types": (),
    "types.streaming": ("streaming",),
    "types.usage_metrics": ("core.output",),
    "version": ("snapshots",),
    # Paths of ours in versions before 0.2.
    "config": ("providers.config",),
    "context": ("crews.context",),
    "errors": ("core.errors",),
    "output": ("core.output",),
}
"""CrewAI's path below the package, and which of our modules have its names; none: a package of others."""

NAMES = {
    "BaseAgent": "Agent",
    "CrewAIEventsBus": "EventBus",
    "crewai_event_bus": "event_bus",
    "get_crewai_version": "get_version",
    "DistilledLessons": "Lessons",
    "LLMGuardrailResult": "Verdict",
    "HumanFeedbackCollapseError": "BadInput",
    "PreReviewResult": "Reviewed",
    "_SENTINEL": "OPTED_OUT",
    "_after_llm_call_hooks": "after_llm_call_hooks",
    "_after_tool_call_hooks": "after_tool_call_hooks",
    "_before_llm_call_hooks": "before_llm_call_hooks",
    "_before_tool_call_hooks": "before_tool_call_hooks",
    "clear": "clear_hooks",
    "clear_all": "clear_all_hooks",
    "register": "register_hook",
    "unregister": "unregister_hook",
    "_do_checkpoint": "write_now",
    "_find_checkpoint": "find_checkpoint",
    "_on_any_event": "write_if_asked",
    "_prepare_entities": "prepare_entities",
    "_resolve": "resolve_checkpoint",
}
"""Names of CrewAI's that are others here."""

_ROOT = __name__.partition(".")[0]


class _Path(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, _Path) and self._found(name) is not None):
            super().__setattr__(name, value)

    def _found(self, name: str) -> Any:
        for home in PATHS[self.__name__.removeprefix(f"{_ROOT}.")]:
            module = importlib.import_module(f"{_ROOT}.{home}")
            for known in (name, NAMES.get(name, name)):
                if hasattr(module, known):
                    return getattr(module, known)
        return None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and (found := self._found(name)) is not None:
            return found
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Loader(Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Path(spec.name, "A path of CrewAI's; see runner.adapters.crewai.import_paths.")

    def exec_module(self, module: ModuleType) -> None:
        package, _, name = module.__name__.rpartition(".")
        if type(sys.modules[package]) is ModuleType and name in vars(sys.modules[package]):
            sys.modules[package].__class__ = _Keeping


class _Keeping(ModuleType):
    """A package of ours with a function of the same name as one of CrewAI's modules: the name stays the function's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not isinstance(value, _Path):
            super().__setattr__(name, value)


class _Finder(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the names of Python's protocol
        target: ModuleType | None = None,  # noqa: ARG002 - the names of Python's protocol
    ) -> importlib.machinery.ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root != _ROOT or rest not in PATHS:
            return None
        above = any(path.startswith(f"{rest}.") for path in PATHS)
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=above)


def install() -> None:
    """Add the finder of these paths after all others, so it only finds what does not exist otherwise."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
