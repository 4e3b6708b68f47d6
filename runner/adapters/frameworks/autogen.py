"""Agents and teams of AutoGen."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from pydantic import BaseModel

from runner.adapters.frameworks.approvals import ask_text, asking_about
from runner.adapters.frameworks.framework import (
    PROMPT,
    AgentFramework,
    as_output,
    is_of,
    keepers,
    record_inside,
    replace_once,
)
from runner.bundles import isolation
from runner.core.errors import InputRequired, StepFailed
from runner.journal.tool_uses import Use, record_uses

_KINDS = (("autogen_agentchat.agents", "BaseChatAgent"), ("autogen_agentchat.teams", "BaseGroupChat"))


class AutoGen(AgentFramework):
    """Its agents and teams, given the input ``prompt`` as their task."""

    name = "autogen"
    module = "autogen_core.tools"
    kinds = _KINDS
    runs = tuple(f"{module}:{kind}.{run}" for module, kind in _KINDS for run in ("run", "run_stream"))

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent or team on the prompt, and return its last message.

        If it hands over to a target that does not participate, a person is asked, and it continues with the answer.
        """
        messages = (await agent.run(task=inputs[PROMPT])).messages
        while _hands_over(messages[-1], agent):
            last = messages[-1]
            answer = ask_text(_question(messages), {"agent": last.source, "target": last.target})
            back = type(last)(source=last.target, target=last.source, content=answer)
            messages = (await agent.run(task=back)).messages
        last = messages[-1]
        return as_output(last.content if isinstance(last.content, str | BaseModel) else last.to_text())

    def record_uses(self) -> None:
        """Record tools below what AutoGen logs of them, and code where an agent has it executed.

        A person is asked what a ``UserProxyAgent`` would read.
        """
        record_inside(import_module("autogen_core.tools").BaseTool, "run_json", "run", _about)
        executes = self.loaded("autogen_agentchat.agents", "CodeExecutorAgent")
        replace_once(executes, "execute_code_block", _showing_code)
        record_uses(executes, "execute_code_block", _about_code)
        if (people := sys.modules.get("autogen_agentchat.agents._user_proxy_agent")) is not None:
            vars(people).setdefault("input", isolation.read_line)
        if (teams := sys.modules.get("autogen_agentchat.teams._group_chat._chat_agent_container")) is not None:
            replace_once(teams.ChatAgentContainer, "__init__", _ending_those_that_ask)


def _hands_over(message: Any, agent: Any) -> bool:
    """Whether it hands over to a target that does not participate in the team."""
    kind: Any = AutoGen.loaded("autogen_agentchat.messages", "HandoffMessage")
    return isinstance(message, kind) and message.target not in getattr(agent, "_participant_names", ())


def _question(messages: Sequence[Any]) -> str:
    """Return what the agent said last, if it said something, and how it hands over."""
    *earlier, last = messages
    said = [one.content for one in earlier if one.source == last.source and isinstance(one.content, str)]
    return "\n".join([*said[-1:], last.content])


def _ending_those_that_ask(begin: Any) -> Any:
    """Of the class that has an agent of a team at work: a team hangs if one raises what is no `Exception`."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        replace_once(self._agent, "on_messages_stream", _raising)

    return __init__


def _raising(stream: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    async def on_messages_stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        try:
            async for one in stream(*args, **kwargs):
                yield one
        except InputRequired as asked:
            raise RuntimeError(f"a person is asked: {asked}") from asked
        except StepFailed as failed:
            raise RuntimeError(str(failed)) from failed

    return on_messages_stream


def _about(tool: Any, args: Mapping[str, Any], *_: object, **__: object) -> Use:
    function = getattr(tool, "_func", None)
    calls = function if is_of("autogen_core", tool.run) else tool.run
    return Use(str(tool.name), dict(args), keepers(tool, function), calls)


def _showing_code(execute: Any) -> Any:
    """Have a person whose approval is asked for shown the code that it is of."""

    async def execute_code_block(self: Any, code_blocks: Any, *args: Any, **kwargs: Any) -> Any:
        with asking_about("\n\n".join(f"```{one.language}\n{one.code.rstrip()}\n```" for one in code_blocks)):
            return await execute(self, code_blocks, *args, **kwargs)

    return execute_code_block


def _about_code(agent: Any, code_blocks: Any, *_: object, **__: object) -> Use:
    return Use("code", [[one.language, one.code] for one in code_blocks], keepers(agent._code_executor))


FRAMEWORK = AutoGen()
