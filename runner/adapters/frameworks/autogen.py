"""Agents and teams of AutoGen."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, is_of, keepers
from runner.bundles import isolation
from runner.core.errors import InputRequired
from runner.journal.tool_uses import Use, record_uses

_KINDS = {"autogen_agentchat.agents": "BaseChatAgent", "autogen_agentchat.teams": "BaseGroupChat"}


class AutoGen(AgentFramework):
    """Its agents and teams, given the input ``prompt`` as their task."""

    name = "autogen"
    module = "autogen_core.tools"
    runs = tuple(f"{module}:{kind}.{run}" for module, kind in _KINDS.items() for run in ("run", "run_stream"))

    def is_agent(self, thing: object) -> bool:
        """An agent or a team, of those modules that are imported."""
        return isinstance(thing, tuple(self.loaded(module, kind) for module, kind in _KINDS.items()))

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent or team on the prompt, and return its last message."""
        last = (await agent.run(task=inputs[PROMPT])).messages[-1]
        return as_output(last.content if isinstance(last.content, str | BaseModel) else last.to_text())

    def record_uses(self) -> None:
        """Record tools where a model's arguments reach them, and code where an agent has it executed. A person is asked
        what a ``UserProxyAgent`` would read."""
        record_uses(import_module("autogen_core.tools").BaseTool, "run_json", _about)
        executes = self.loaded("autogen_agentchat.agents", "CodeExecutorAgent")
        record_uses(executes, "execute_code_block", _about_code)
        _ask_people(sys.modules.get("autogen_agentchat.agents._user_proxy_agent"))


def _ask_people(module: Any) -> None:
    """Wrap the method in which a ``UserProxyAgent`` reads a line. A team hangs if that raises no `Exception`."""
    if module is None or "input" in vars(module):
        return
    module.input = isolation.read_line
    found = module.UserProxyAgent._get_input

    async def get_input(*args: Any) -> str:
        try:
            return str(await found(*args))
        except InputRequired as asked:
            raise RuntimeError(f"a person is asked: {asked}") from asked

    module.UserProxyAgent._get_input = get_input


def _about(tool: Any, args: Mapping[str, Any], *_: object, **__: object) -> Use:
    function = getattr(tool, "_func", None)
    calls = function if is_of("autogen_core", tool.run) else tool.run
    return Use(str(tool.name), dict(args), keepers(tool, function), calls)


def _about_code(agent: Any, code_blocks: Any, *_: object, **__: object) -> Use:
    return Use("code", [[one.language, one.code] for one in code_blocks], keepers(agent._code_executor))


FRAMEWORK = AutoGen()
