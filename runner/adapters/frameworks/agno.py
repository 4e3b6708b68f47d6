"""Agents, teams and workflows of Agno."""

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import ask, ask_text, decide, elsewhere
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, keepers, replace_once
from runner.core.errors import TaskError
from runner.journal.code_beside import runs_again
from runner.journal.tool_uses import Use, recorded

_KINDS = (("agno.agent", "Agent"), ("agno.team", "Team"), ("agno.workflow", "Workflow"))
_RUNS = ("run", "arun", "print_response", "aprint_response", "cli_app", "acli_app")


class Agno(AgentFramework):
    """Whatever has ``arun``, given the input ``prompt``."""

    name = "agno"
    module = "agno.tools.function"
    kinds = _KINDS
    runs = tuple(f"{module}:{kind}.{run}" for module, kind in _KINDS for run in _RUNS)

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent on the prompt, and return the content of its answer.

        Raises `TaskError` if the run did not complete, as where a model refused a call.
        """
        answer = await agent.arun(input=inputs[PROMPT])
        while getattr(answer, "is_paused", False) and (required := getattr(answer, "active_requirements", None)):
            for one in required:
                _meet(one)
            answer = await agent.acontinue_run(run_response=answer)
        _require_completed(answer)
        return as_output(answer.content)

    def record_uses(self) -> None:
        """In the function that a tool calls, as it is about to be called. Its hooks run again."""
        call = import_module("agno.tools.function").FunctionCall
        for method in ("execute", "aexecute"):
            replace_once(call, method, _recorded)


def _require_completed(answer: Any) -> None:
    """Raise `TaskError` for an answer that is the text of an error: Agno marks it, or its step, and raises nothing."""
    status: Any = getattr(answer, "status", "COMPLETED")
    if status != "COMPLETED":
        raise TaskError(f"Agno ended the run as {status.value.lower()}: {answer.content}")
    last = (getattr(answer, "step_results", None) or [[]])[-1]
    for step in last if isinstance(last, list) else [last]:
        if not step.success:
            raise TaskError(f"the last step, {step.step_name}, failed: {step.error or step.content}")


def _meet(requirement: Any) -> None:
    """Ask a person what a tool waits for: their consent, values for its arguments, a choice, or what it gives."""
    tool = requirement.tool_execution
    if requirement.needs_confirmation:
        decision = decide(tool.tool_name, tool.tool_args)
        if decision.approved:
            requirement.confirm()
        else:
            requirement.reject(decision.reason or None)
    if requirement.needs_user_input:
        fields = [field for field in requirement.user_input_schema if field.value is None]
        given = {}
        for field in fields:
            obtain = ask_text if field.field_type is str else ask
            given[field.name] = obtain(f"{tool.tool_name}: {field.description or field.name}?")
        requirement.provide_user_input(given)
    if requirement.needs_user_feedback:
        chosen = {}
        for one in requirement.user_feedback_schema:
            options = ", ".join(option.label for option in one.options or ())
            answer = ask(f"{one.question} ({options})" if options else one.question)
            chosen[one.question] = [str(each) for each in (answer if isinstance(answer, list) else [answer])]
        requirement.provide_user_feedback(chosen)
    if requirement.needs_external_execution:
        requirement.set_external_execution_result(str(ask(elsewhere(tool.tool_name, tool.tool_args))))


def _recorded(method: Any) -> Any:
    def execute(self: Any) -> Any:
        function = self.function
        if function.entrypoint is not None:
            function.entrypoint = recorded(function.entrypoint, functools.partial(_about, function))
        for hook in ("pre_hook", "post_hook"):
            if (found := getattr(function, hook)) is not None:
                setattr(function, hook, runs_again(found))
        if function.tool_hooks:
            function.tool_hooks = [runs_again(one) for one in function.tool_hooks]
        return method(self)

    return execute


def _about(function: Any, **kwargs: Any) -> Use:
    """Without what Agno injects, which may be changed: the state of the session, and what the run depends on."""
    known = (function.parameters or {}).get("properties", {})
    context = getattr(function, "_run_context", None)
    lent = tuple(getattr(context, name, None) for name in ("session_state", "dependencies", "metadata"))
    lent += keepers(function.entrypoint)
    given = {name: value for name, value in kwargs.items() if name in known}
    return Use(str(function.name), given, lent, function.entrypoint)


FRAMEWORK = Agno()
