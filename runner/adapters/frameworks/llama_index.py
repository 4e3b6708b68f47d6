"""Agents and agent workflows of LlamaIndex, and the workflows that it has as a package of their own."""

import asyncio
import dataclasses
import functools
import inspect
import json
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from importlib import import_module
from itertools import takewhile
from types import coroutine
from typing import Any

from pydantic import ValidationError

from runner.adapters.frameworks.approvals import ask_text, shown
from runner.adapters.frameworks.framework import (
    PROMPT,
    AgentFramework,
    as_output,
    declared_kinds,
    is_of,
    keepers,
    record_inside,
    replace_once,
    required,
    run_again_beside,
)
from runner.adapters.frameworks.required_inputs import attributes_read
from runner.bundles.arguments import called
from runner.bundles.program import Program
from runner.core.errors import TaskError
from runner.core.field_errors import format_field_errors
from runner.journal.current_journal import current_journal
from runner.journal.tool_uses import Use

_AGENTS, _WORKFLOWS = "llama_index.core.agent.workflow", "workflows"
_KINDS = ((_AGENTS, "BaseWorkflowAgent"), (_AGENTS, "AgentWorkflow"), (_WORKFLOWS, "Workflow"))

_waits: ContextVar[dict[Any, type] | None] = ContextVar("runner_llama_index_waits", default=None)
"""The classes of events that steps of the workflow at hand wait for."""


class LlamaIndex(AgentFramework):
    """Its agents, asked the input ``prompt``, and other workflows, which take the run's inputs.

    A tool that takes the workflow's context runs again: it may change it.
    """

    name = "llama-index"
    module = "workflows.workflow"
    kinds = _KINDS
    runs = tuple(f"{module}:{kind}.run" for module, kind in _KINDS)

    def inputs(self, agent: Any) -> list[str]:
        """Return ``prompt`` for agents; for another workflow what its ``run``, or the class of its first event, needs.

        If its author wrote neither, what the steps that take that event use of it at once.
        """
        if self._is_asked(agent):
            return [PROMPT]
        if (own := self._own_run(agent)) is not None:
            return list(own.needs)
        begins, event = getattr(agent, "start_event_class", None), self.loaded("workflows.events", "StartEvent")
        if begins is None:
            return []
        if begins is event:
            return [name for name in _read_of_first(agent, begins) if not hasattr(begins, name)]
        return required(begins, event)

    def input_kinds(self, agent: Any) -> dict[str, str]:
        """Return the types of the arguments of the author's ``run``, or of the fields of the workflow's first event."""
        if self._is_asked(agent):
            return {}
        own = self._own_run(agent)
        return dict(own.kinds) if own is not None else declared_kinds(getattr(agent, "start_event_class", None))

    def input_names(self, agent: Any) -> list[str]:
        """The arguments of the author's ``run`` of a workflow; a first event takes any."""
        own = None if self._is_asked(agent) else self._own_run(agent)
        return list(own.takes or ()) if own is not None else []

    def _own_run(self, workflow: Any) -> Program | None:
        """Return the ``run`` that the author wrote in place of the framework's, if any."""
        kind = type(workflow)
        if kind.run is vars(self.loaded(_WORKFLOWS, "Workflow")).get("run"):
            return None
        return called(f"{kind.__name__}.run", workflow.run)

    def _is_asked(self, agent: Any) -> bool:
        return isinstance(agent, tuple(self.loaded(module, kind) for module, kind in _KINDS[:2]))

    async def run(self, agent: Any, inputs: Mapping[str, Any]) -> Any:
        """Run the agent or workflow, and return its result: an agent's answer is a model if one is declared."""
        answer = agent.run(user_msg=inputs[PROMPT]) if self._is_asked(agent) else agent.run(**inputs)
        while inspect.isawaitable(answer):  # its author's own run may be a coroutine, and give what is to be awaited
            begun = answer
            try:
                answer = await begun
            except asyncio.CancelledError:
                if hasattr(begun, "cancel"):
                    begun.cancel()
                raise
        if not self._is_asked(agent):
            return as_output(answer)
        found = getattr(answer, "structured_response", None)
        return as_output(found if found is not None else str(answer))

    def record_uses(self) -> None:
        """Where a tool calls its function, below its spans and its callback.

        What a step waits for is known where it begins to, and asked where the end of its workflow is awaited.
        """
        workflows = import_module("workflows")
        replace_once(workflows.Context, "wait_for_event", _noting_waits)
        _ask_where_awaited(workflows.Workflow, import_module("workflows.handler").WorkflowHandler)
        handlers = import_module("llama_index_instrumentation")
        run_again_beside(handlers.event_handlers.BaseEventHandler, "handle", "ahandle")
        run_again_beside(handlers.span_handlers.BaseSpanHandler, "span_", "new_span", "prepare_to_")
        tool = self.loaded("llama_index.core.tools", "FunctionTool")
        if hasattr(tool, "call"):  # else workflows alone are imported, which have no tools
            for method, calls in (("call", "_fn"), ("acall", "_async_fn")):
                record_inside(tool, method, calls, functools.partial(_about, calls))


def _read_of_first(workflow: Any, begins: type) -> list[str]:
    """Return the attributes of the first event that the steps read which accept only that event."""
    steps = [(one, one._step_config) for one in workflow._get_steps().values() if hasattr(one, "_step_config")]
    return [
        name
        for one, config in steps
        if config.accepted_events == [begins]
        for name in attributes_read(one, config.event_name)
    ]


@dataclasses.dataclass
class _Begun:
    """A workflow that has begun."""

    workflow: Any
    waits: dict[Any, type]
    """The classes of events that its steps wait for."""
    unread: list[Any] = dataclasses.field(default_factory=list)
    """Its events that were taken while its end was awaited: for whoever reads them later."""
    is_read: bool = False
    asking: "asyncio.Task[None] | None" = None
    """What takes them, for all who await its end."""
    more: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Another one was taken, or it has ended."""


def _ask_where_awaited(workflow: Any, handler: Any) -> None:
    """Ask a person what a workflow wants to know while code awaits its end and reads none of its events."""
    if hasattr(workflow.run, "is_asked_of"):
        return
    begin, read, end = workflow.run, handler.stream_events, coroutine(handler.__await__)

    @functools.wraps(begin)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        waits: dict[Any, type] = {}
        before = _waits.set(waits)  # its steps see what is there as it begins
        try:
            begun = begin(self, *args, **kwargs)
        finally:
            _waits.reset(before)
        begun.about = _Begun(self, waits)
        return begun

    @functools.wraps(read)
    async def stream_events(self: Any, expose_internal: bool = False) -> AsyncIterator[Any]:
        about, seen = self.about, 0
        asking, about.is_read = None if about.is_read else about.asking, True
        if asking is None:  # they can be read once, and it says so
            async for event in read(self, expose_internal=expose_internal):
                yield event
            return
        while True:
            about.more.clear()
            for event in about.unread[seen:]:
                seen += 1
                if expose_internal or not isinstance(event, events.InternalDispatchEvent):
                    yield event
            if asking.done():
                return
            await about.more.wait()

    async def ask(self: Any) -> None:
        async for event in read(self, expose_internal=True):
            self.about.unread.append(event)
            self.about.more.set()
            if isinstance(event, events.InputRequiredEvent) and not self.about.is_read:
                self.ctx.send_event(_answered(self.about, event))

    async def ended(self: Any) -> Any:
        await asyncio.sleep(0)  # whoever reads it in a task of its own has begun then
        about = self.about
        if about.asking is None:
            if about.is_read or current_journal() is None:
                return await end(self)
            about.asking = asyncio.ensure_future(ask(self))
            about.asking.add_done_callback(lambda _: about.more.set())
        both = about.asking, asyncio.ensure_future(end(self))
        try:  # where a step asks a person itself, it ends without an event that says so
            await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        except BaseException:  # this one does not wait any longer; the workflow continues
            both[1].cancel()
            raise
        try:
            if about.asking.done() and not about.asking.cancelled():
                about.asking.result()
            return both[1].result()
        except BaseException:  # a question, too: the attempt ends, and its steps with it
            self.cancel()
            about.asking.cancel()
            raise

    events = import_module("workflows.events")
    run.is_asked_of = True  # type: ignore[attr-defined]  # a mark on a function
    workflow.run, handler.stream_events = run, stream_events
    handler.__await__ = lambda self: ended(self).__await__()


def _answered(begun: _Begun, asked: Any) -> Any:
    """The event that a person answers with, of the class that is waited for.

    Text is its ``response``, or its only field; several are JSON. What does not fit its class is asked for again.
    """
    kind = _awaited(begun, asked)
    told = {name: one for name, one in asked.items() if name != "prefix"}
    declared = {name: getattr(asked, name) for name in type(asked).model_fields}
    found: dict[str, Any] = {**declared, **dict(asked.items())} if declared else {"prefix": "", **dict(asked.items())}
    only = next(iter(found.values())) if len(found) == 1 else None
    question = only if isinstance(only, str) else shown(found)
    about = {"schema": kind.model_json_schema()} if kind.model_fields else {}
    refused = ""
    while True:
        answer = ask_text(f"{question} ({refused})" if refused else question, about)
        try:
            return kind(**{**told, **_given(kind, answer)})
        except ValidationError as error:
            refused = " ".join(format_field_errors(error).split())


def _given(kind: Any, answer: str) -> dict[str, Any]:
    try:
        given = json.loads(answer)
    except ValueError:
        given = answer
    fields = kind.model_fields
    if isinstance(given, dict):
        return given if fields else {**given, "response": answer}
    needed = [name for name, field in fields.items() if field.is_required()] or list(fields) or ["response"]
    only = fields.get(needed[0])
    return {needed[0]: answer if only is None or only.annotation is str else given}


def _awaited(begun: _Begun, asked: Any) -> Any:
    """The class of the answer: what a step waits for by itself, or takes.

    Of several that whose name begins most as the question's does: nothing else in a workflow says which is the answer
    to what.
    """
    plain = import_module("workflows.events").HumanResponseEvent
    found = {kind for kind in begun.waits.values() if issubclass(kind, plain)}
    found = found or {kind for kind in begun.workflow.events if issubclass(kind, plain)}
    letters = {kind: zip(kind.__name__, type(asked).__name__, strict=False) for kind in found}
    alike = {kind: len([*takewhile(lambda two: two[0] == two[1], pairs)]) for kind, pairs in letters.items()}
    best = [kind for kind in alike if alike[kind] == max(alike.values())]
    if len(best) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in best))
        raise TaskError(
            f"{type(asked).__name__} may be answered by {names}: name the class of the question and that of its answer "
            "alike, as in PayRequired and PayAnswered, or submit a function that asks by input()"
        )
    return best[0] if best else plain


def _noting_waits(found: Any) -> Any:
    async def wait_for_event(self: Any, event_type: Any, *args: Any, **kwargs: Any) -> Any:
        waits, this = _waits.get(), (event_type, repr((args, kwargs)))
        if waits is not None:
            waits[this] = event_type
        given = await found(self, event_type, *args, **kwargs)  # raises until there is an answer
        if waits is not None:
            waits.pop(this, None)
        return given

    return wait_for_event


def _about(calls: str, tool: Any, *args: Any, **kwargs: Any) -> Use | None:
    if getattr(tool, "requires_context", False):
        return None
    function, real = getattr(tool, calls, None), getattr(tool, "_real_fn", None)
    if is_of("llama_index", function):  # which makes one of the other kind
        function = real
    return Use(str(tool.metadata.get_name()), [args, kwargs], keepers(real), function)


FRAMEWORK = LlamaIndex()
