"""Agents of Strands."""

import functools
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import ask
from runner.adapters.frameworks.framework import PROMPT, AgentFramework, as_output, is_of, keepers, replace_once
from runner.core.annotations import signature_of
from runner.core.errors import TaskError
from runner.journal.code_beside import runs_again
from runner.journal.tool_context import Without
from runner.journal.tool_uses import Use, recorded

_RUNS = ("__call__", "invoke_async", "stream_async")
_KINDS = (
    ("strands.agent.agent", "Agent"),
    ("strands.multiagent.graph", "Graph"),
    ("strands.multiagent.swarm", "Swarm"),
)


class Strands(AgentFramework):
    """Its agents, graphs and swarms, asked the input ``prompt``."""

    name = "strands"
    module = "strands.agent"
    kinds = _KINDS
    runs = tuple(f"{module}:{kind}.{run}" for module, kind in _KINDS for run in _RUNS)

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent on the prompt, and return its answer: a model if one is declared; several agents' by name.

        Raises `TaskError` if several agents did not complete, as where a model refused a call of a swarm's.
        """
        answer = await agent.invoke_async(inputs[PROMPT])
        while interrupts := getattr(answer, "interrupts", None):
            answers = [{"interruptId": one.id, "response": ask(_question(one))} for one in interrupts]
            answer = await agent.invoke_async([{"interruptResponse": one} for one in answers])
        if not isinstance(agent, import_module("strands").Agent):
            _require_completed(answer)
            return as_output({name: str(one.result).rstrip("\n") for name, one in sorted(answer.results.items())})
        found = getattr(answer, "structured_output", None)
        return as_output(found if found is not None else str(answer).rstrip("\n"))

    def record_uses(self) -> None:
        """In the functions that are decorated as tools from here on. Hooks run again."""
        hooks = import_module("strands.hooks").HookRegistry
        replace_once(hooks, "get_callbacks_for", _running_again)
        replace_once(import_module("strands.tools.decorator").DecoratedFunctionTool, "__init__", _recording)


def _running_again(found: Any) -> Any:
    def get_callbacks_for(self: Any, event: Any) -> Iterator[Any]:
        return map(runs_again, found(self, event))

    return get_callbacks_for


def _require_completed(answer: Any) -> None:
    """Raise `TaskError` for a result of several agents that failed: a swarm raises nothing, nor a graph at a limit."""
    if answer.status.value == "completed":
        return
    failed = {name: one.result for name, one in answer.results.items() if one.status.value == "failed"}
    why = "; ".join(f"{name}: {result}" for name, result in failed.items()) or "it reached one of its limits"
    causes = [one for one in failed.values() if isinstance(one, Exception)]
    raise TaskError(f"Strands ended the run as {answer.status.value}: {why}") from next(iter(causes), None)


def _question(interrupt: Any) -> Any:
    return {"name": interrupt.name, "reason": interrupt.reason} if interrupt.reason is not None else interrupt.name


_THEIRS = (
    "agent",
    "model",
    "messages",
    "system_prompt",
    "tool_config",
    "event_loop_cycle_id",
    "event_loop_cycle_trace",
    "event_loop_cycle_span",
    "event_loop_parent_cycle_id",
    "event_loop_parent_span",
)
"""What Strands itself has in the state of an invocation."""


def _about(tool: Any, *args: Any, **kwargs: Any) -> Use:
    """Without what Strands injects, which may be changed: the state of the agent, and of the invocation."""
    agents = import_module("strands.types.tools").ToolContext, import_module("strands").Agent
    injected = [one for one in (*args, *kwargs.values()) if isinstance(one, agents)]
    lent: list[Any] = []
    for one in injected:
        state = getattr(getattr(one, "agent", one), "state", None)
        lent += [getattr(state, "_data", None), Without(getattr(one, "invocation_state", {}), _THEIRS)]
    known = {name: one for name, one in kwargs.items() if not isinstance(one, agents)}
    return Use(tool.__name__, [[one for one in args if not isinstance(one, agents)], known], (*lent, *keepers(tool)))


def _steers(tool: Any) -> bool:
    """Whether the tool is Strands' own, by which a model steers the agent: that has to happen again in each process.

    Such are a swarm's handoff and the messages. Its tools that do something else are in a package of theirs.
    """
    return is_of("strands", tool) and not tool.__module__.startswith("strands.vended_tools.")


def _recording(init: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature_of(init).bind(self, *args, **kwargs)
        tool = given.arguments["tool_func"]
        if not _steers(tool):
            given.arguments["tool_func"] = recorded(
                tool, functools.partial(_about, tool), passing=(import_module("strands.interrupt").InterruptException,)
            )
        init(*given.args, **given.kwargs)

    return __init__


FRAMEWORK = Strands()
