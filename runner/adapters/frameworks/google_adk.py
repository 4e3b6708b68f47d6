"""Agents of Google's Agent Development Kit."""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import decide
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, keepers
from runner.journal.tool_uses import Use, record_uses

_ASKS = "adk_request_confirmation"  #: the function that it calls for a person


class GoogleADK(AgentFramework):
    """Its agents, told the input ``prompt`` in a session of their own."""

    name = "google-adk"
    module = "google.adk.agents"
    runs = ("google.adk.runners:Runner.run", "google.adk.runners:Runner.run_async")

    def is_agent(self, thing: object) -> bool:
        """An agent of any kind."""
        return isinstance(thing, import_module("google.adk.agents").BaseAgent)

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """The text of its final response."""
        types = import_module("google.genai.types")
        runner = import_module("google.adk.runners").InMemoryRunner(agent=agent)
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="runner")
        said = types.Part(text=str(inputs[PROMPT]))
        answer, asked = "", [said]
        while asked:
            events = [
                event
                async for event in runner.run_async(
                    user_id="runner", session_id=session.id, new_message=types.Content(role="user", parts=asked)
                )
            ]
            for event in events:
                if event.is_final_response() and event.content and event.content.parts:
                    answer = "".join(part.text or "" for part in event.content.parts) or answer
            asked = [
                _decided(types, call) for event in events for call in event.get_function_calls() if call.name == _ASKS
            ]
        return as_output(answer)

    def record_uses(self) -> None:
        """Where a tool runs its function."""
        record_uses(import_module("google.adk.tools").FunctionTool, "run_async", _about)


def _decided(types: Any, call: Any) -> Any:
    """A person's decision of a tool that needs to be confirmed, as ADK wants to be told."""
    original = call.args.get("originalFunctionCall") or {}
    approved, _ = decide(original.get("name", ""), original.get("args"))
    response = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": approved})
    return types.Part(function_response=response)


def _about(tool: Any, *, args: dict[str, Any], tool_context: Any) -> Use | None:
    asks = getattr(tool, "_require_confirmation", False) and not tool_context.tool_confirmation
    if asks or inspect.isasyncgenfunction(tool.func):
        return None
    context = tool_context._invocation_context
    artifacts = getattr(context.artifact_service, "artifacts", None)
    lent = (context.session.state, vars(tool_context.actions), artifacts)
    return Use(str(tool.name), args, (*lent, *keepers(tool.func)), tool.func)


FRAMEWORK = GoogleADK()
