"""Records the tool calls of CrewAI's agents as steps of the task, before a model receives their results.

A hook of CrewAI's replaces the tool's own function before each use. What CrewAI does around it (validation, limits, its
cache, its events) stays the same.
"""

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from crewai import Crew
from crewai.hooks import InterceptionPoint
from crewai.tools.agent_tools.base_agent_tools import BaseAgentTool
from crewai.tools.base_tool import BaseTool, Tool
from crewai.tools.tool_failure import ToolFailure
from pydantic import BaseModel

from runner.adapters.crewai.crew_plan import hooked
from runner.adapters.crewai.tool_state import ToolStateCarrier
from runner.adapters.crewai.usage import Spending
from runner.core import encoding
from runner.core.redaction import redact
from runner.core.waiting import result_of
from runner.engine.work import Work
from runner.journal import tool_errors
from runner.journal.class_names import loaded, name_of
from runner.journal.current_journal import active_journal
from runner.journal.tool_uses import ToolUse, Use, recorded


@contextlib.contextmanager
def journaled(crew: Crew, work: Work) -> Iterator[ToolStateCarrier]:
    """While this is open, each tool use in this process is a step of this task, whichever agent or thread makes it."""
    carried, spending = ToolStateCarrier(crew), Spending()

    def durable(function: Callable[..., Any], name: str, tool: Any) -> Callable[..., Any]:
        delegates = isinstance(tool, BaseAgentTool)  # to another agent, whose own calls are counted

        def about(*args: Any, **kwargs: Any) -> Use:
            return Use(name, [*args, kwargs], calls=function, counted=not delegates)

        def call(*args: Any, **kwargs: Any) -> Any:
            return result_of(function(*args, **kwargs))

        return recorded(
            function if inspect.iscoroutinefunction(function) else functools.wraps(function)(call),
            about,
            passing=(Exception,) if delegates else (),  # only errors of a delegated agent itself propagate
            make=functools.partial(_ToolUse, tool, carried, spending),
        )

    def before(context: Any) -> None:
        """Before a tool is used, replace its function by a recorded one."""
        if active_journal() not in (work.journal, None):
            return  # it is another task's, beside this one
        given, name = context.tool, str(context.tool_name)
        tool = getattr(given, "_original_tool", None)
        if isinstance(tool, Tool):  # its methods look for its function when they are called
            if not _is_recorded(tool.func):
                tool.func = durable(tool.func, name, tool)
        elif isinstance(tool, BaseTool):
            for method in ("_run", "_arun"):
                if not _is_recorded(getattr(tool, method)):
                    object.__setattr__(tool, method, durable(getattr(tool, method), name, tool))
            if not _is_recorded(given.func):
                given.func = tool._run
        elif given is not None and not _is_recorded(given.func):
            given.func = durable(given.func, name, given)

    with hooked(InterceptionPoint.PRE_TOOL_CALL, before):
        yield carried


def _is_recorded(function: Any) -> bool:
    return getattr(function, "records_uses", None) == "tool"


class _ToolUse(ToolUse):
    """One use, with what it changes in the state of the crew's tools, and the tokens that a delegation uses."""

    def __init__(self, tool: Any, carried: ToolStateCarrier, spending: Spending, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._carried, self._open = carried, contextlib.ExitStack()
        self._spent = self._open.enter_context(spending.by(tool))
        self._before = carried.seen()
        schema = getattr(tool, "result_schema", None)
        self._schema = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None

    def _known_by(self) -> tuple[Any, ...]:
        return tuple(self._use.arguments)  # as in older versions

    def close(self) -> None:
        """It is over."""
        self._open.close()
        super().close()

    @contextlib.contextmanager
    def being_made(self) -> Iterator[None]:
        """While the tool works. What it changed is in the record at the end."""
        with super().being_made():
            yield
        self.record |= {**self._carried.noted(self._before), **self._spent.noted()}

    def gave(self, value: Any) -> None:
        """The tool gave this. What cannot be recorded is what a model is given of it."""
        super().gave(value)
        if not _comes_back(value):
            super().gave(value.model_dump(mode="json") if self._schema and isinstance(value, BaseModel) else str(value))
            self._given = [value]

    def raised(self, error: Exception) -> None:
        """The tool raised this. With a secret in it, the agent is told the same now as on replay, without that."""
        text = json.dumps(tool_errors.record_of(error))
        if not isinstance(error, self._passing) and redact(text) != text:
            error = tool_errors.ToolRaised.named(type(error).__name__, redact(str(error)))
        super().raised(error)

    def result(self, recorded: Mapping[str, Any]) -> Any:
        """Return the result of the tool, or raise its error."""
        if not self.record:
            self._carried.replayed(recorded)
            self._spent.replayed(recorded)
        return super().result(recorded)

    def _value_in(self, record: Mapping[str, Any]) -> Any:
        match record:  # of older versions, except for the last
            case {"failure": failure}:
                return ToolFailure.model_validate(failure)
            case {"model": data}:
                return self._schema.model_validate(data) if self._schema else data
            case {"text": text}:
                return text
        return super()._value_in(record)


def _comes_back(value: Any) -> bool:
    """Whether the value can be recorded, with classes that are found by their names."""
    try:
        encoding.encode(value, lambda of: name_of(of) if loaded(name_of(of)) is of else None)
    except encoding.NotSerializable:
        return False
    return True
