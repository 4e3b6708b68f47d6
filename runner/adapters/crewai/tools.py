"""Records the tool calls of CrewAI's agents as steps of the task, before a model receives their results.

CrewAI asks its hooks before each use: there the tool's own function is replaced by one that looks into the journal.
What CrewAI does around it (validation, limits, its cache, its events) is as it is without us.
"""

import asyncio
import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from crewai import Crew
from crewai.hooks import InterceptionPoint
from crewai.tools.agent_tools.base_agent_tools import BaseAgentTool
from crewai.tools.base_tool import BaseTool, Tool
from crewai.tools.tool_failure import ToolFailure
from pydantic import BaseModel

from runner.adapters.crewai.crew_plan import hooked
from runner.adapters.crewai.tool_state import ToolStateCarrier
from runner.adapters.crewai.usage import Spending, Spent
from runner.core.idempotency import keyed, origin
from runner.core.redaction import redact
from runner.engine.work import Work
from runner.journal.current_journal import journal_here
from runner.journal.journal import Journal
from runner.journal.steps import current_step


@contextlib.contextmanager
def journaled(crew: Crew, work: Work) -> Iterator[ToolStateCarrier]:
    """While this is open, each tool use in this process is a step of this task, whichever agent or thread makes it."""
    journaling = _Journaling(work.journal, ToolStateCarrier(crew))
    with hooked(InterceptionPoint.PRE_TOOL_CALL, journaling.before):
        yield journaling.carried


class _Journaling:
    def __init__(self, journal: Journal, carried: ToolStateCarrier) -> None:
        self._journal = journal
        self.carried = carried
        self._spending = Spending()
        self._origin = origin()

    def before(self, context: Any) -> None:
        """Before a tool is used, replace its function by one that looks into the journal."""
        if journal_here() not in (self._journal, None):
            return  # it is another task's, beside this one
        given, name = context.tool, str(context.tool_name)
        tool = getattr(given, "_original_tool", None)
        if isinstance(tool, Tool):  # its methods look for its function when they are called
            if not _is_journaled(tool.func):
                tool.func = self._durable(tool.func, name, tool)
        elif isinstance(tool, BaseTool):
            for method in ("_run", "_arun"):
                if not _is_journaled(getattr(tool, method)):
                    object.__setattr__(tool, method, self._durable(getattr(tool, method), name, tool))
            if not _is_journaled(given.func):
                given.func = tool._run
        elif given is not None and not _is_journaled(given.func):
            given.func = self._durable(given.func, name, given)

    def _durable(self, function: Callable[..., Any], name: str, tool: Any) -> Callable[..., Any]:
        def use(*args: Any, **kwargs: Any) -> Any:
            with self._spending.by(tool) as spent:
                one = _Use(tool, self.carried, spent)

                def run(*_: Any) -> Any:
                    with keyed(self._key()), one.being_made():
                        one.gave(_awaited(function(*args, **kwargs)))
                    return one.record

                return one.result(self._step(name, run, tool, args, kwargs))

        async def use_async(*args: Any, **kwargs: Any) -> Any:
            with self._spending.by(tool) as spent:
                one = _Use(tool, self.carried, spent)

                async def run(*_: Any) -> Any:
                    with keyed(self._key()), one.being_made():
                        one.gave(await function(*args, **kwargs))
                    return one.record

                return one.result(await self._step(name, run, tool, args, kwargs))

        found: Callable[..., Any] = use_async if inspect.iscoroutinefunction(function) else use
        found.__dict__["of_the_journal"] = True
        return found

    def _step(self, name: str, run: Callable[..., Any], tool: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Record one tool use. A delegation to another agent is not counted, since its own calls are."""
        counted = not isinstance(tool, BaseAgentTool)
        return self._journal.step(f"tool {name}", run, (*args, kwargs), {}, kind="tool", model=name, counted=counted)

    def _key(self) -> str:
        """Return the key of the current step: the same in each attempt, whatever steps run side by side."""
        frame = current_step.get()
        digest = hashlib.sha256(frame.key.encode()).hexdigest()[:16] if frame is not None else ""
        return f"{self._origin}:{digest}" if self._origin and digest else ""


class _Use:
    """One tool use: its result is here if it was really made, and read from the journal if not."""

    def __init__(self, tool: Any, carried: ToolStateCarrier, spent: Spent) -> None:
        self._tool, self._carried, self._spent = tool, carried, spent
        self._before = carried.seen()
        self._given: list[Any] = []
        self._raised: Exception | None = None
        self.record: dict[str, Any] = {}

    @contextlib.contextmanager
    def being_made(self) -> Iterator[None]:
        """While this is open, the tool works; afterwards `record` has what it gave or raised, and what it changed."""
        try:
            yield
        except Exception as error:
            self.record = self._note_error(error)
        self.record = {**self.record, **self._carried.noted(self._before), **self._spent.noted()}

    def gave(self, value: Any) -> None:
        """The tool gave this."""
        self._given = [value]
        self.record = as_noted(value, _schema(self._tool))

    def _note_error(self, error: Exception) -> dict[str, Any]:
        """Record the tool's error, which the agent is told. Only errors of a delegated agent itself propagate."""
        if isinstance(self._tool, BaseAgentTool):
            raise error
        name, text = type(error).__name__, redact(str(error))
        # The agent is told the same now as when this is replayed.
        self._raised = error if text == str(error) else _raised(name, text)
        return {"raised": [name, text]}

    def result(self, noted: dict[str, Any]) -> Any:
        """Return the result to the agent, or raise what the tool raised."""
        if self._raised is not None:
            raise self._raised
        if self._given:
            return self._given[0]
        self._carried.replayed(noted)
        self._spent.replayed(noted)
        if "raised" in noted:
            raise _raised(*noted["raised"])
        return from_noted(noted, _schema(self._tool))


def as_noted(value: Any, schema: type[BaseModel] | None) -> dict[str, Any]:
    """A tool's result as JSON. What JSON does not have is recorded as the text that a model is given."""
    if isinstance(value, ToolFailure):
        return {"failure": value.model_dump(mode="json")}
    if isinstance(value, BaseModel) and schema is not None:
        return {"model": value.model_dump(mode="json")}
    return {"value": value} if _is_plain(value) else {"text": str(value)}


def from_noted(noted: dict[str, Any], schema: type[BaseModel] | None) -> Any:
    """Convert a recorded result back, as far as models see it."""
    if "failure" in noted:
        return ToolFailure.model_validate(noted["failure"])
    if "model" in noted:
        return noted["model"] if schema is None else schema.model_validate(noted["model"])
    return noted["value"] if "value" in noted else noted["text"]


class ToolRaised(Exception):
    """The error of a tool, replayed: it has the same name and text."""


def _raised(name: str, text: str) -> Exception:
    error: Exception = type(name, (ToolRaised,), {})(text)
    return error


def _awaited(value: Any) -> Any:
    """Await the result where a plain function returned a coroutine."""
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _is_journaled(function: Any) -> bool:
    return getattr(function, "of_the_journal", False) is True


def _schema(tool: Any) -> type[BaseModel] | None:
    """Return the model of the tool's results, as the crew's code declares it."""
    found = getattr(tool, "result_schema", None)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _is_plain(value: Any) -> bool:
    """Whether the value comes back from JSON unchanged."""
    if isinstance(value, list) and type(value) is list:
        return all(_is_plain(one) for one in value)
    if isinstance(value, dict) and type(value) is dict:
        return all(type(key) is str and _is_plain(one) for key, one in value.items())
    return value is None or type(value) in (str, int, float, bool)
