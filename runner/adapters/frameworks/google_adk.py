"""Agents of Google's Agent Development Kit."""

import functools
import inspect
import itertools
import re
import uuid
import weakref
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import ask, decide, elsewhere
from runner.adapters.frameworks.framework import (
    PROMPT,
    AgentFramework,
    as_output,
    keepers,
    record_own_uses,
    replace_once,
    run_again_beside,
)
from runner.core.errors import TaskError
from runner.core.idempotency import origin
from runner.journal.code_beside import runs_again
from runner.journal.current_journal import current_journal
from runner.journal.journal import Journal
from runner.journal.tool_uses import About, Use, record_uses


class GoogleADK(AgentFramework):
    """Its agents, told the input ``prompt`` in a session of their own."""

    name = "google-adk"
    module = "google.adk.agents"
    kinds = (("google.adk.agents", "BaseAgent"), ("google.adk.apps", "App"), ("google.adk.workflow", "Workflow"))
    runs = ("google.adk.runners:Runner.run", "google.adk.runners:Runner.run_async")

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Return the text of the final response, or what a workflow gives that ends with none.

        A person answers each long-running call, as in ``adk run``. Raises `TaskError` if an error took the place of the
        response, as where a model's provider blocked it.
        """
        types = import_module("google.genai.types")
        kind = next((name for name, of in self._others().items() if isinstance(agent, of)), "agent")
        runner = import_module("google.adk.runners").InMemoryRunner(**{kind: agent})
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="runner")
        answer: Any = ""
        failed: Any = None
        asked: dict[str, Any] = {}
        said, resumed = [types.Part(text=str(inputs[PROMPT]))], dict[str, str]()
        while said:
            message, asked = types.Content(role="user", parts=said), {}
            async for event in runner.run_async(
                user_id="runner", session_id=session.id, new_message=message, **resumed
            ):
                waiting = event.long_running_tool_ids or ()
                asked |= {call.id: call for call in event.get_function_calls() if call.id in waiting}
                resumed = {"invocation_id": event.invocation_id}
                if given := _given(event):
                    answer, failed = given, None
                elif event.error_code and not (event.content and event.content.parts):
                    failed = event
            said = [
                types.Part(
                    function_response=types.FunctionResponse(id=call.id, name=call.name, response=_answered(call))
                )
                for call in asked.values()
            ]
        if failed is not None:
            raise TaskError(f"ADK ended with {failed.error_code}: {failed.error_message or 'no message'}")
        return as_output(answer)

    def _others(self) -> dict[str, Any]:
        """Return the classes besides agents that a runner runs, by the name of the runner's argument."""
        return {"app": self.loaded("google.adk.apps", "App"), "node": self.loaded("google.adk.workflow", "Workflow")}

    def parts(self, agent: Any) -> list[Any]:
        """Return the sub-agents of an agent, or the root agent of an app."""
        return [agent.root_agent] if isinstance(agent, self._others()["app"]) else super().parts(agent)

    def record_uses(self) -> None:
        """Record tools where they call their function, and code where it is executed."""
        _record(import_module("google.adk.tools").FunctionTool, _about)
        record_own_uses(
            import_module("google.adk.tools").BaseTool, "run_async", functools.partial(_record, about=_about_own)
        )
        for executor in import_module("google.adk.code_executors.base_code_executor").BaseCodeExecutor.__subclasses__():
            record_uses(executor, "execute_code", _about_code)
        run_again_beside(import_module("google.adk.plugins.base_plugin").BasePlugin, "before_", "after_", "on_")
        for agent in (import_module("google.adk.agents").BaseAgent, import_module("google.adk.agents").LlmAgent):
            _have_callbacks_run_again(agent)
        replace_once(import_module("google.adk.sessions").InMemorySessionService, "create_session", _keeping_ids)


def _have_callbacks_run_again(agent: type) -> None:
    """What callbacks change in the state is not recorded with the tool uses beside them."""
    for name, found in vars(agent).copy().items():
        if re.fullmatch("canonical_.*_callbacks", name) and not hasattr(found.fget, "runs_again"):
            setattr(agent, name, _running_again(found.fget))


def _running_again(given: Any) -> property:
    def callbacks(self: Any) -> list[Any]:
        return [runs_again(one) for one in given(self)]

    callbacks.runs_again = True  # type: ignore[attr-defined]  # a mark on a function
    return property(callbacks)


_sessions: "weakref.WeakKeyDictionary[Journal, Iterator[int]]" = weakref.WeakKeyDictionary()


def _keeping_ids(create: Any) -> Any:
    """Have sessions in memory the same ids in each attempt at a task: a session's artifacts are kept under its id."""

    async def create_session(self: Any, *, session_id: str | None = None, **kwargs: Any) -> Any:
        return await create(self, session_id=session_id or _next_session_id(), **kwargs)

    return create_session


def _next_session_id() -> str | None:
    found = current_journal()
    if found is None or not origin():
        return None
    number = next(_sessions.setdefault(found[0], itertools.count()))
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{origin()} session {number}"))


def _record(tool: Any, about: About) -> None:
    """Record the uses of a class of tools."""
    record_uses(tool, "run_async", about)
    replace_once(tool, "run_async", _asking_by_its_id)


def _asking_by_its_id(run: Any) -> Any:
    """What a tool asks of a person is known by the id of its call: that of now, where a use is replayed.

    ADK makes ids up where the model's answer has none.
    """

    async def run_async(self: Any, *, args: dict[str, Any], tool_context: Any) -> Any:
        given = await run(self, args=args, tool_context=tool_context)
        actions, now = tool_context.actions, tool_context.function_call_id
        for asked in (actions.requested_tool_confirmations, actions.requested_auth_configs):
            for before in [one for one in asked if one != now]:
                asked[now] = asked.pop(before)
        return given

    return run_async


def _given(event: Any) -> Any:
    """Return the result of a final event: its text, or the output of a workflow's node. None for any other event."""
    parts = event.content.parts if event.is_final_response() and event.content else None
    return "".join(part.text or "" for part in parts or ()) or getattr(event, "output", None)


def _answered(call: Any) -> dict[str, Any]:
    """Ask a person what a pending call waits for, and return the answer in ADK's form."""
    about = call.args or {}
    if call.name == "adk_request_confirmation":
        original, template = about.get("originalFunctionCall") or {}, about.get("toolConfirmation") or {}
        decision = decide(original.get("name", ""), original.get("args"), template.get("payload"))
        return {"confirmed": decision.approved, "payload": decision.given}
    if call.name == "adk_request_input":
        known = {name: one for name, one in about.items() if one is not None and name != "interruptId"}
        answer = ask(known if known.keys() - {"message"} else known.get("message", "Input requested"))
    else:
        answer = ask(elsewhere(call.name, about))
    return answer if isinstance(answer, dict) else {"result": answer}


def _about(tool: Any, *, args: dict[str, Any], tool_context: Any) -> Use | None:
    asks = getattr(tool, "_require_confirmation", False) and not tool_context.tool_confirmation
    if asks or inspect.isasyncgenfunction(tool.func):
        return None
    return Use(str(tool.name), args, (*_lent(tool_context), *keepers(tool.func)), tool.func)


def _about_own(tool: Any, *, args: dict[str, Any], tool_context: Any) -> Use:
    return Use(str(tool.name), args, (*_lent(tool_context), *keepers(tool)))


def _about_code(executor: Any, context: Any, code_execution_input: Any) -> Use:  # noqa: ARG001 - as ADK calls it
    files = [[one.name, one.content] for one in code_execution_input.input_files]
    return Use("code", [code_execution_input.code, *files], keepers(executor))


def _lent(tool_context: Any) -> tuple[Any, ...]:
    state, service = tool_context._invocation_context.session.state, tool_context._invocation_context.artifact_service
    while (above := getattr(service, "tool_context", None)) is not None:  # an agent as a tool passes on
        service = above._invocation_context.artifact_service
    return state, vars(tool_context.actions), getattr(service, "artifacts", None)


FRAMEWORK = GoogleADK()
