"""Graphs of LangGraph, and the agents of LangChain, which are such graphs."""

import functools
import uuid
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from runner.adapters.frameworks.approvals import APPROVE, REJECT, ask, decide
from runner.adapters.frameworks.framework import (
    PROMPT,
    AgentFramework,
    as_output,
    declared,
    declared_kinds,
    is_of,
    keepers,
)
from runner.core.errors import TaskError
from runner.journal.tool_context import Without
from runner.journal.tool_uses import Use, record_uses


class LangGraph(AgentFramework):
    """Compiled graphs. One that takes messages is asked the input ``prompt``; another one takes the run's inputs."""

    name = "langgraph"
    module = "langgraph.pregel"
    runs = tuple(f"langgraph.pregel:Pregel.{one}" for one in ("invoke", "ainvoke", "stream", "astream"))

    def is_agent(self, thing: object) -> bool:
        """A compiled graph."""
        return isinstance(thing, import_module("langgraph.pregel").Pregel)

    def inputs(self, agent: Any) -> list[str]:
        """``prompt`` stands for its messages. What else its state may begin with, no schema says on every Python."""
        return [PROMPT] if "messages" in agent.channels else []

    def input_kinds(self, agent: Any) -> dict[str, str]:
        """As the class of its state declares its fields."""
        return declared_kinds(_begins_with(agent))

    def input_names(self, agent: Any) -> list[str]:
        """The same, and ``prompt``: the graph would pass over others without a word."""
        schema = _begins_with(agent)
        is_open = getattr(schema, "model_config", {}).get("extra") == "allow"
        fields = [] if is_open else list(declared(schema))
        return [*self.inputs(agent), *fields] if fields else []

    def name_of(self, agent: Any) -> str:
        """What its author calls it: not what LangGraph calls every graph without a name."""
        name = super().name_of(agent)
        return name if name != "LangGraph" else ""

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """The text of its last message, or its last state."""
        given = dict(inputs)
        if PROMPT in given and "messages" in agent.channels:
            given["messages"] = [{"role": "user", "content": given.pop(PROMPT)}]
        config = _own_thread(agent)
        state = await agent.ainvoke(given, config)
        while isinstance(state, dict) and state.get("__interrupt__"):
            if not agent.checkpointer:
                raise TaskError("the graph asks a person but has no checkpointer: compile it with an InMemorySaver()")
            answers = {one.id: _answer(one.value) for one in state["__interrupt__"]}
            state = await agent.ainvoke(import_module("langgraph.types").Command(resume=answers), config)
        if isinstance(state, dict) and state.get("messages"):
            if "structured_response" in state:
                return as_output(state["structured_response"])
            return as_output(getattr(state["messages"][-1], "text", None) or state["messages"][-1].content)
        return as_output(state)

    def record_uses(self) -> None:
        """At the methods by which LangChain's tools are used."""
        tool = import_module("langchain_core.tools").BaseTool
        passing = (import_module("langgraph.errors").GraphBubbleUp,)
        for method in ("run", "arun"):
            record_uses(tool, method, functools.partial(_about, method), passing=passing)


def _begins_with(agent: Any) -> Any:
    """The class of what its state may begin with; None for a graph that has none."""
    return getattr(getattr(agent, "builder", None), "input_schema", None)


def _own_thread(agent: Any) -> dict[str, Any] | None:
    """Where its checkpointer keeps this attempt, which begins with nothing; the author may have said where."""
    if not agent.checkpointer or "thread_id" in ((agent.config or {}).get("configurable") or {}):
        return None
    return {"configurable": {"thread_id": str(uuid.uuid4())}}


def _answer(asked: Any) -> Any:
    """What a person answers to an interrupt; of uses of tools, as LangChain's middleware asks, a decision of each."""
    if isinstance(asked, Mapping) and asked.get("type") == "tool_approval":
        return _decision(asked)
    if isinstance(asked, Mapping) and "action_requests" in asked:
        return {"decisions": [_decision(one) for one in asked["action_requests"]]}
    return ask(asked)


def _decision(use: Mapping[str, Any]) -> dict[str, str]:
    approved, reason, _ = decide(use["name"], use["args"])
    return {"type": APPROVE} if approved else {"type": REJECT, **({"message": reason} if reason else {})}


def _calls(tool: Any, method: str) -> Any:
    """The function that a tool calls by this method: a coroutine only if it has one, and what an author's class has
    instead of either."""
    own = tool._arun if method == "arun" else tool._run
    coroutine = getattr(tool, "coroutine", None) if method == "arun" else None
    if method == "arun" and coroutine is None and is_of("langchain_core", own):
        own = tool._run
    if is_of("langchain_core", own):
        return coroutine or getattr(tool, "func", None)
    return own


def _about(method: str, tool: Any, tool_input: Any, *_: object, **__: object) -> Use | None:
    """Without what the graph injects: its state is no argument that a model gave, but may be changed."""
    calls = _calls(tool, method)
    kept = keepers(tool, getattr(tool, "func", None), getattr(tool, "coroutine", None))
    if not isinstance(tool_input, dict):
        return Use(str(tool.name), tool_input, kept, calls)
    schema = tool.tool_call_schema
    known = (
        schema.get("properties", {}) if isinstance(schema, dict) else schema.model_json_schema().get("properties", {})
    )
    injected = [value for name, value in tool_input.items() if name not in known]
    runtime = next((one for one in injected if hasattr(one, "stream_writer")), None)
    if runtime is not None:
        injected = [*(one for one in injected if one is not runtime), runtime.state, runtime.context, runtime.store]
    in_memory = AgentFramework.loaded("langgraph.store.memory", "InMemoryStore")
    if any(isinstance(one, in_memory) for one in injected):
        return None
    stores = AgentFramework.loaded("langgraph.store.base", "BaseStore")
    lent = [
        Without(one, ("messages",)) if isinstance(one, dict) else one for one in injected if not isinstance(one, stores)
    ]
    given = {name: value for name, value in tool_input.items() if name in known}
    return Use(str(tool.name), given, (*lent, *kept), calls)


FRAMEWORK = LangGraph()
