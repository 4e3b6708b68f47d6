"""Graphs of LangGraph, and the agents of LangChain, which are such graphs."""

import contextlib
import dataclasses
import functools
import inspect
import uuid
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from runner.adapters.frameworks.approvals import APPROVE, REJECT, ask, decide
from runner.adapters.frameworks.framework import (
    PROMPT,
    AgentFramework,
    as_output,
    declared,
    declared_kinds,
    is_of,
    keepers,
    record_inside,
    replace_once,
    required,
    run_again_beside,
)
from runner.adapters.frameworks.langgraph_store import StoredItems, in_memory, store_of_graph
from runner.adapters.frameworks.required_inputs import keys_read
from runner.bundles.arguments import given
from runner.core.annotations import signature_of
from runner.core.errors import TaskError
from runner.core.inputs import kind_of
from runner.journal.tool_context import Without
from runner.journal.tool_uses import Use

_MESSAGES = "messages"
_SEND = "__pregel_send"
_ITSELF = {str, int, float, bool, list, tuple, set, type(None)}


class LangGraph(AgentFramework):
    """Compiled graphs. One that takes messages is asked the input ``prompt``; another one takes the run's inputs."""

    name = "langgraph"
    module = "langgraph.pregel"
    kinds = (("langgraph.pregel", "Pregel"),)
    runs = tuple(f"langgraph.pregel:Pregel.{one}" for one in ("invoke", "ainvoke", "stream", "astream"))

    def inputs(self, agent: Any) -> list[str]:
        """``prompt`` stands for its messages, where the run has none; then what else it cannot begin without."""
        if (argument := _argument(agent)) is not None:
            return [argument[0]]
        needed = [name for name in _needed(agent) if name != _MESSAGES]
        return [PROMPT, *needed] if _MESSAGES in agent.channels and _MESSAGES not in (given.get() or {}) else needed

    def input_kinds(self, agent: Any) -> dict[str, str]:
        """Return the types of the fields of the graph's state, or of its function's argument."""
        if (argument := _argument(agent)) is not None:
            return {name: kind for name, of in [argument] if (kind := kind_of(of))}
        return declared_kinds(_begins_with(agent))

    def input_names(self, agent: Any) -> list[str]:
        """Return the fields of the graph's state, and ``prompt``: the graph would ignore any others silently."""
        if (argument := _argument(agent)) is not None:
            return [argument[0]]
        schema = _begins_with(agent)
        is_open = getattr(schema, "model_config", {}).get("extra") == "allow"
        fields = [] if is_open else list(declared(schema))
        prompt = [PROMPT] if _MESSAGES in agent.channels else []
        return [*dict.fromkeys([*prompt, *fields])] if fields else []

    def name_of(self, agent: Any) -> str:
        """Return the author's name of the graph; "" for LangGraph's default name."""
        name = super().name_of(agent)
        return name if name != "LangGraph" else ""

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """The text of its last message, or its last state."""
        begins: Any = dict(inputs)
        if (argument := _argument(agent)) is not None:
            begins = begins[argument[0]]
        elif PROMPT in begins and _MESSAGES in agent.channels:
            begins[_MESSAGES] = [*begins.get(_MESSAGES, []), {"role": "user", "content": begins.pop(PROMPT)}]
        config = _own_thread(agent)
        try:
            state = await agent.ainvoke(begins, config)
        except KeyError as error:
            name = error.args[0] if error.args else None
            if name not in declared(_begins_with(agent)) or name in begins:
                raise
            raise TaskError(
                f"the graph looked up {name!r}, which is in no input: give it with --input {name}=..."
            ) from error
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
        """Below the callbacks of LangChain's tools. These and an agent's middleware run again."""
        run_again_beside(import_module("langchain_core.callbacks").BaseCallbackHandler, "on_")
        middleware: Any = self.loaded("langchain.agents.middleware.types", "AgentMiddleware")
        run_again_beside(middleware, *(f"{a}{when}_" for when in ("before", "after", "wrap") for a in ("", "a")))
        tool = import_module("langchain_core.tools").BaseTool
        passing = (import_module("langgraph.errors").GraphBubbleUp,)
        for method in ("run", "arun"):
            record_inside(tool, method, f"_{method}", functools.partial(_about, method), passing=passing)
            replace_once(tool, method, _linked)


def _linked(run: Any) -> Any:
    """What a use gives is linked to its call by the id of that call: of this one, where it is replayed.

    Of equal uses side by side another one's may be recorded first.
    """

    def link(given: Any, now: str | None) -> Any:
        update = getattr(given, "update", None)  # of a command
        said = update.get(_MESSAGES, ()) if isinstance(update, dict) else [given]
        linked = [one for one in said if getattr(one, "type", "") == "tool"]
        if now is not None and len(linked) == 1:
            linked[0].tool_call_id = now
        return given

    def linked(*args: Any, **kwargs: Any) -> Any:
        return link(run(*args, **kwargs), kwargs.get("tool_call_id"))

    async def alinked(*args: Any, **kwargs: Any) -> Any:
        return link(await run(*args, **kwargs), kwargs.get("tool_call_id"))

    return alinked if inspect.iscoroutinefunction(run) else linked


def _argument(agent: Any) -> tuple[str, Any] | None:
    """Return the one argument of an `@entrypoint` that is declared to be text, a number or a list, and its type.

    It is given that input itself. Another one is given all inputs by name, as a graph is.
    """
    start = None if hasattr(agent, "builder") else agent.channels.get("__start__")
    of = getattr(start, "typ", None)
    if not {get_origin(one) or one for one in _members(of)} <= _ITSELF:
        return None
    bound = next(iter(agent.nodes.values())).bound
    function = getattr(bound, "func", None) or getattr(bound, "afunc", None)
    return (next(iter(signature_of(function).parameters)), of) if function is not None else None


def _members(of: Any) -> tuple[Any, ...]:
    return get_args(of) if get_origin(of) in (Union, UnionType) else (of,)


def _begins_with(agent: Any) -> Any:
    """The class of what its state may begin with; None for a graph that has none."""
    return getattr(getattr(agent, "builder", None), "input_schema", None)


def _needed(agent: Any) -> list[str]:
    """What a graph's state has to begin with, where its first step fails for certain without.

    Nothing where that may be there already, in a thread that its author names.
    """
    fields = declared(_begins_with(agent))
    if not fields or (agent.checkpointer and _own_thread(agent) is None):
        return []
    needed = {name for one, schema in _first(agent.builder) for name in _lacks(one, schema)}
    return [name for name in fields if name in needed and not _is_there(agent.channels.get(name))]


def _first(builder: Any) -> Iterator[tuple[Any, Any]]:
    """Return the functions that are called at a graph's start, each with the class of what it gets.

    They are those of the nodes there, unless they wait for others or may fail, and those that choose among them.
    """
    start = "__start__"
    for spec in [builder.nodes[name] for begin, name in builder.edges if begin == start and name in builder.nodes]:
        if not spec.defer and getattr(spec, "error_handler_node", None) is None:
            yield _function(spec.runnable), spec.input_schema
    for branch in builder.branches.get(start, {}).values():
        yield _function(branch.path), branch.input_schema or builder.state_schema


def _function(runnable: Any) -> Any:
    """Return the function that a runnable calls; None if it does more, as one with fallbacks."""
    found = getattr(runnable, "__dict__", {})
    func, afunc = found.get("func"), found.get("afunc")
    return afunc if func is None or inspect.isroutine(afunc) else func


def _lacks(function: Any, schema: Any) -> list[str]:
    """Return the required fields of an argument's class; if that checks nothing, the keys that are read at once."""
    if hasattr(schema, "model_fields"):
        return required(schema, BaseModel)
    if dataclasses.is_dataclass(schema):
        none = dataclasses.MISSING
        return [
            one.name for one in dataclasses.fields(schema) if one.init and one.default is none is one.default_factory
        ]
    return keys_read(function)


def _is_there(channel: Any) -> bool:
    """Whether a channel has something without an input, as those with a reducer have; so has what is no channel."""
    return not hasattr(channel, "is_available") or bool(channel.is_available())


def _own_thread(agent: Any) -> dict[str, Any] | None:
    """Return a new thread for this attempt if the graph has a checkpointer and its author named no thread."""
    if not agent.checkpointer or "thread_id" in ((agent.config or {}).get("configurable") or {}):
        return None
    return {"configurable": {"thread_id": str(uuid.uuid4())}}


def _answer(asked: Any) -> Any:
    """Ask a person about an interrupt. For tool uses, as LangChain's middleware asks, return a decision for each."""
    if isinstance(asked, Mapping) and asked.get("type") == "tool_approval":
        return _decision(asked)
    if isinstance(asked, Mapping) and "action_requests" in asked:
        return {"decisions": [_decision(one) for one in asked["action_requests"]]}
    return ask(asked)


def _decision(use: Mapping[str, Any]) -> dict[str, str]:
    approved, reason, _ = decide(use["name"], use["args"])
    return {"type": APPROVE} if approved else {"type": REJECT, **({"message": reason} if reason else {})}


def _calls(tool: Any, method: str) -> Any:
    """Return the function that a tool calls by this method, or the one that an author's class has instead."""
    own = tool._arun if method == "arun" else tool._run
    coroutine = getattr(tool, "coroutine", None) if method == "arun" else None
    if method == "arun" and coroutine is None and is_of("langchain_core", own):
        own = tool._run
    if is_of("langchain_core", own):
        return coroutine or getattr(tool, "func", None)
    return own


def _writes() -> tuple[Any, ...]:
    """Return the list to which code adds what it sends to the graph's channels.

    A use of a tool sends there what it does not return, as deepagents' files.
    """
    with contextlib.suppress(RuntimeError):
        sends = import_module("langgraph.config").get_config().get("configurable", {}).get(_SEND)
        if (writes := getattr(sends, "__self__", None)) is not None:
            return (writes,)
    return ()


def _about(method: str, tool: Any, tool_input: Any, *_: object, **__: object) -> Use | None:
    """Without what the graph injects: its state is no argument that a model gave, but may be changed."""
    calls = _calls(tool, method)
    kept = (*keepers(tool, getattr(tool, "func", None), getattr(tool, "coroutine", None)), *_writes())
    if not isinstance(tool_input, dict):
        return Use(str(tool.name), tool_input, kept, calls)
    schema = tool.tool_call_schema
    known = (schema if isinstance(schema, dict) else schema.model_json_schema()).get("properties", {})
    injected = [value for name, value in tool_input.items() if name not in known]
    runtime = next((one for one in injected if hasattr(one, "stream_writer")), None)
    if runtime is not None:
        injected = [*(one for one in injected if one is not runtime), runtime.state, runtime.context, runtime.store]
    base = AgentFramework.loaded("langgraph.store.base", "BaseStore")
    stores = [one for one in (*injected, store_of_graph()) if isinstance(one, base)]
    lent = [
        *(
            Without(one, ("messages",)) if isinstance(one, dict) else one
            for one in injected
            if not isinstance(one, base)
        ),
        *dict.fromkeys(StoredItems.of(one) for one in stores if in_memory(one)),
    ]
    given = {name: value for name, value in tool_input.items() if name in known}
    return Use(str(tool.name), given, (*lent, *kept), calls)


FRAMEWORK = LangGraph()
