"""Agents of the OpenAI Agents SDK."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import decide
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, keepers, run_again_beside
from runner.journal.code_beside import runs_again
from runner.journal.tool_uses import About, Use, record_uses, recorded


class OpenAIAgents(AgentFramework):
    """Its agents, asked the input ``prompt``; of agents that hand over to each other, the one at the beginning."""

    name = "openai-agents"
    module = "agents.run"
    kinds = (("agents", "Agent"),)
    runs = ("agents.run:Runner.run", "agents.run:Runner.run_sync", "agents.run:Runner.run_streamed")

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent on the prompt, and return the final output of ``Runner.run``."""
        run = import_module("agents").Runner.run
        result = await run(agent, inputs[PROMPT])
        while result.interruptions:
            state = result.to_state()
            for item in result.interruptions:
                decision = decide(item.name or "", item.arguments)
                if decision.approved:
                    state.approve(item)
                else:
                    state.reject(item, rejection_message=decision.reason or None)
            result = await run(agent, state)
        return as_output(result.final_output)

    def record_uses(self) -> None:
        """Record uses at the function by which a runner uses a tool, before errors become text for the model.

        Of tools whose kind is OpenAI's own, such as a shell, the author's part is recorded as it is about to be called.
        """
        for module in ("agents.tool", "agents.run_internal.tool_execution"):
            record_uses(import_module(module), "_invoke_function_tool_with_metadata", _about)
        actions = import_module("agents.run_internal.tool_actions")
        record_uses(actions.ComputerAction, "_execute_action_and_capture", _about_computer)
        for kind, record in _OWN_KINDS.items():
            _before(getattr(actions, kind), record)
        guardrails, of_tools = import_module("agents.guardrail"), import_module("agents.tool_guardrails")
        for kind in (guardrails.InputGuardrail, of_tools.ToolInputGuardrail, of_tools.ToolOutputGuardrail):
            kind.run = runs_again(kind.run)
        lifecycle = import_module("agents.lifecycle")
        for hooks in (lifecycle.RunHooksBase, lifecycle.AgentHooksBase):
            run_again_beside(hooks, "on_")


def _about(*, function_tool: Any, arguments: str, context: Any, **_: object) -> Use:
    invoke = function_tool.on_invoke_tool
    calls = invoke._get_wrapped_callable() if hasattr(type(invoke), "_get_wrapped_callable") else None
    return Use(str(function_tool.name), arguments, (context.context,), calls)


def _before(action: Any, record: Callable[[Any], None]) -> None:
    """Have ``record`` called with each tool call that an action of the SDK is about to execute."""
    execute = action.execute
    if hasattr(execute, "records_uses"):
        return

    @functools.wraps(execute)
    async def executed(*, call: Any, **kwargs: Any) -> Any:
        record(call)
        return await execute(call=call, **kwargs)

    executed.records_uses = True  # type: ignore[attr-defined]  # a mark on a function
    action.execute = staticmethod(executed)


def _record_attribute(tool: Any, name: str, about: Callable[..., Use]) -> None:
    """Record each call of the function, or object that can be called, that an author gave a tool."""
    fn = getattr(tool, name)
    if fn is not None and not hasattr(fn, "awaits"):
        setattr(tool, name, _awaiting(fn, functools.partial(about, tool, keepers(fn))))


def _awaiting(fn: Any, about: About) -> Any:
    async def call(*args: Any) -> Any:
        given = fn(*args)
        return await given if inspect.isawaitable(given) else given

    made = recorded(functools.wraps(fn, updated=())(call), about)
    made.awaits = True  # type: ignore[attr-defined]  # a mark on a function
    return made


def _record_editor(call: Any) -> None:
    for method in ("create_file", "update_file", "delete_file"):
        record_uses(type(call.apply_patch_tool.editor), method, _about_patch)


def _about_local_shell(tool: Any, keeps: tuple[Any, ...], request: Any) -> Use:
    return Use(tool.name, request.data.action.model_dump(), (request.ctx_wrapper.context, *keeps))


def _about_shell(tool: Any, keeps: tuple[Any, ...], request: Any) -> Use:
    return Use(tool.name, dataclasses.asdict(request.data.action), (request.ctx_wrapper.context, *keeps))


def _about_custom(tool: Any, keeps: tuple[Any, ...], context: Any, given: str) -> Use:
    return Use(tool.name, given, (context.context, *keeps))


def _about_patch(editor: Any, operation: Any) -> Use:
    what = {name: getattr(operation, name, None) for name in ("type", "path", "diff", "move_to")}
    return Use("apply_patch", what, (getattr(operation.ctx_wrapper, "context", None), *keepers(editor)))


def _about_computer(action: Any, computer: Any, tool_call: Any) -> Use:
    return Use("computer", [one.model_dump() for one in action._iter_actions(tool_call)], keepers(computer))


_OWN_KINDS: Mapping[str, Callable[[Any], None]] = {
    "LocalShellAction": lambda call: _record_attribute(call.local_shell_tool, "executor", _about_local_shell),
    "ShellAction": lambda call: _record_attribute(call.shell_tool, "executor", _about_shell),
    "CustomToolAction": lambda call: _record_attribute(call.custom_tool, "on_invoke_tool", _about_custom),
    "ApplyPatchAction": _record_editor,
}
"""What is done with a tool call before it is executed, by the SDK's class that executes it."""

FRAMEWORK = OpenAIAgents()
