"""Agents of Microsoft's Agent Framework."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import decide
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, keepers, run_again_beside
from runner.journal.code_beside import runs_again
from runner.journal.tool_context import Without
from runner.journal.tool_uses import Use, record_uses


class MicrosoftAgents(AgentFramework):
    """Its agents, asked the input ``prompt``."""

    name = "agent-framework"
    module = "agent_framework"
    kinds = (("agent_framework", "BaseAgent"),)
    runs = ("agent_framework:RawAgent.run", "agent_framework:Agent.run")

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent on the prompt, and return its answer: a model if one is declared."""
        session = agent.create_session()  # it knows what a person is asked
        answer = await agent.run(inputs[PROMPT], session=session)
        while requests := answer.user_input_requests:
            decided = [one.to_function_approval_response(_decided(one.function_call)) for one in requests]
            said = import_module("agent_framework").Message("user", decided)
            answer = await agent.run(said, session=session)
        found = answer.value
        return as_output(found if found is not None else answer.text)

    def record_uses(self) -> None:
        """Record tools where they call their function. Middleware runs again."""
        record_uses(import_module("agent_framework").FunctionTool, "_invoke_function", _about)
        middleware = import_module("agent_framework._middleware")
        middleware.MiddlewareWrapper.process = runs_again(middleware.MiddlewareWrapper.process)
        for kind in (middleware.AgentMiddleware, middleware.FunctionMiddleware, middleware.ChatMiddleware):
            run_again_beside(kind, "process")


def _decided(call: Any) -> bool:
    return decide(call.name, call.arguments).approved


def _about(tool: Any, call_kwargs: Mapping[str, Any]) -> Use:
    """Without the context that a tool may ask for, of which it may change what the author gave."""
    injected = tool._context_parameter_name
    context = call_kwargs.get(injected)
    known = {name: one for name, one in call_kwargs.items() if name != injected}
    given = getattr(context, "kwargs", None) or {}  # a dict of each use, of what all may change
    shared = {name: one for name, one in given.items() if not isinstance(one, str | int | float | None)}
    return Use(str(tool.name), known, (Without(given, shared.keys()), *shared.values(), *keepers(tool.func)), tool.func)


FRAMEWORK = MicrosoftAgents()
