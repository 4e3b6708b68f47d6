"""Calls the hooks around an agent's model calls and tool uses: see `runner.hooks`."""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from runner.agents import Agent
from runner.agents.job import Job
from runner.agents.tools import BaseTool
from runner.hooks import recorded, registry
from runner.hooks.contexts import LLMCallHookContext, ToolCallHookContext

Message = dict[str, Any]


def before_model_call(job: Job) -> bool:
    """Have the hooks look at what the model is about to be told; whether they changed it.

    Raises `LLMCallBlockedError`, or `HookAborted`.
    """
    if not registry.any_here():
        return False
    context, place = _of_model(job)
    return _take(job, context, recorded.before_model_call(context, job.journal, place))


def asking() -> AbstractContextManager[Any]:
    """Around the call itself: a model of a person's own that calls another one calls no hooks again."""
    return recorded.called_for() if registry.any_here() else nullcontext()


def after_model_call(job: Job) -> bool:
    """Have the hooks look at the answer that was added last, if one was; whether they changed the conversation.

    Raises `HookAborted`.
    """
    messages = job.conversation.messages
    if not registry.any_here() or not messages or messages[-1]["role"] != "assistant":
        return False
    context, place = _of_model(job)
    answer = str(messages[-1].get("content") or "")
    context.messages, context.response = context.messages[:-1], answer
    changed = recorded.after_model_call(context, job.journal, place)
    last = dict(messages[-1])
    if context.response != answer:
        last["content"], changed = context.response, True
    context.messages.append(last)
    return _take(job, context, changed)


class HookedUse:
    """A use of a tool with its hooks. ``number`` is that of the call in its conversation."""

    def __init__(self, job: Job, tool: BaseTool, name: str, number: int) -> None:
        self._job, self._tool, self._name = job, tool, name
        self._place = (job.role, name, number)

    def before(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        """The arguments as the hooks leave them, and what the model is told where one refuses the use."""
        context = self._context(copy.deepcopy(arguments))
        refused = recorded.before_tool_call(context, self._job.journal, self._place)
        return context.tool_input, refused

    def after(self, arguments: Mapping[str, Any], result: str) -> str:
        """The result as the hooks leave it. Raises `HookAborted`."""
        context = self._context(dict(arguments))
        context.tool_result = context.raw_tool_result = result
        return recorded.after_tool_call(context, self._job.journal, self._place)

    def _context(self, arguments: dict[str, Any]) -> ToolCallHookContext:
        job = self._job
        return ToolCallHookContext(self._name, arguments, self._tool, _agent_of(job), job.task, crew_of(job))


def crew_of(job: Job) -> Any:
    """The crew for which an agent is at work; None without one."""
    return getattr(job.task, "crew", None) or job.agent.crew


def _agent_of(job: Job) -> Agent:
    """The agent, with its role as its model is told it: the inputs stand in it."""
    return job.agent if job.role == job.agent.role else job.agent.model_copy(update={"role": job.role})


def _of_model(job: Job) -> tuple[LLMCallHookContext, recorded.Place]:
    """The hooks get a copy of the conversation: what they change is taken over when it is recorded."""
    messages = copy.deepcopy(job.conversation.messages)
    asked = sum(message["role"] == "assistant" for message in messages)
    about: dict[str, Any] = {"agent": _agent_of(job), "task": job.task, "crew": crew_of(job)}
    return LLMCallHookContext(messages=messages, llm=job.model, iterations=asked, **about), (job.role, asked)


def _take(job: Job, context: LLMCallHookContext, changed: bool) -> bool:
    if changed:
        before, job.conversation.messages[:] = list(job.conversation.messages), context.messages
        job.from_hooks.extend(one for one in context.messages if one not in before)
        job.chain.reset()
    return changed
