"""Restores the fields of a tool's object after replayed uses, and in later tasks.

As far as it is JSON, or comes back from JSON by the type that the field is declared with. Other things stay where they
were made: clients, locks, functions.
"""

import typing
from collections.abc import Iterable, Mapping
from typing import Any

from crewai import Crew
from crewai.tools.base_tool import BaseTool, Tool
from pydantic import TypeAdapter

from runner.adapters.crewai import crew_plan
from runner.engine.work import Work

MOST = 256 * 1024  #: characters of what one field has

State = dict[str, str]
"""Fields by name, each as JSON."""

_OWN = frozenset(BaseTool.model_fields) | frozenset(BaseTool.__private_attributes__)


def seen(tool: Any) -> State:
    """Return the fields of a tool as JSON. Empty for CrewAI's own tools and for functions, which keep no state."""
    if not isinstance(tool, BaseTool) or isinstance(tool, Tool) or type(tool).__module__.startswith("crewai."):
        return {}
    fields = {**vars(tool), **(tool.__pydantic_private__ or {})}
    fields = {name: value for name, value in fields.items() if name not in _OWN and not callable(value)}
    hints = _hints(type(tool)) if fields else {}
    found = {name: _as_json(value, hints.get(name, Any)) for name, value in fields.items()}
    return {name: text for name, text in found.items() if text is not None and len(text) <= MOST}


def changed(tool: Any, before: Mapping[str, str]) -> State:
    """Return the fields that differ from ``before``."""
    return {name: text for name, text in seen(tool).items() if before.get(name) != text}


def put(tool: Any, state: Mapping[str, str]) -> None:
    """Set the fields of a tool."""
    hints = _hints(type(tool))
    for name, text in state.items():
        value = TypeAdapter(hints.get(name, Any)).validate_json(text)
        if name in (tool.__pydantic_private__ or {}):
            tool.__pydantic_private__[name] = value
        else:
            vars(tool)[name] = value


class ToolStateCarrier:
    """The tools of one crew that have fields of their own, during one task. Their names are those of each process."""

    def __init__(self, crew: Crew) -> None:
        every: list[Any] = []
        self._tools: dict[str, Any] = {}
        for tool in _of([*crew_plan.staff(crew), *crew.tasks]):
            if not any(tool is other for other in every):
                every.append(tool)
                again = sum(other.name == tool.name for other in every)
                if seen(tool):
                    self._tools[f"{tool.name} {again}" if again > 1 else tool.name] = tool
        self._begun: dict[str, State] = {}
        self._ended = 0  # uses, as they ended: what a later one left is not undone by an earlier one
        self._newest: dict[tuple[str, str], int] = {}

    def take_up(self, work: Work) -> None:
        """Set the fields to what the earlier tasks left."""
        if self._tools:
            for key, record in work.stored_with(work.plan.earlier(work.key)).items():
                if left := record.get("tools"):
                    work.uses.task(key)
                    self.put(left)
        self._begun = self.seen()

    @property
    def left(self) -> dict[str, State]:
        """The fields that this task changed, by tool."""
        return self.changed(self._begun)

    def seen(self) -> dict[str, State]:
        """Return the fields of all tools."""
        return {name: seen(tool) for name, tool in self._tools.items()}

    def changed(self, before: Mapping[str, State]) -> dict[str, State]:
        """Return the fields that differ from ``before``, by tool."""
        found = {name: changed(tool, before[name]) for name, tool in self._tools.items()}
        return {name: state for name, state in found.items() if state}

    def put(self, left: Mapping[str, State]) -> None:
        """Set the fields of these tools."""
        for name in left.keys() & self._tools.keys():
            put(self._tools[name], left[name])

    def noted(self, before: Mapping[str, State]) -> dict[str, Any]:
        """Return what is recorded with the result of a tool use that just ended: the fields that it changed."""
        self._ended += 1
        left = self.changed(before)
        return {"left": left, "ended": self._ended} if left else {}

    def replayed(self, noted: Mapping[str, Any]) -> None:
        """Set the fields as a replayed tool use left them."""
        ended = noted.get("ended", 0)
        self._ended = max(self._ended, ended)
        for name, state in noted.get("left", {}).items():
            newer = {field: text for field, text in state.items() if self._newest.get((name, field), 0) < ended}
            self._newest.update(dict.fromkeys(((name, field) for field in newer), ended))
            self.put({name: newer})


def _of(owners: Iterable[Any]) -> Iterable[Any]:
    for owner in owners:
        yield from getattr(owner, "tools", None) or ()


def _hints(kind: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # names that are only there while types are checked
        return {}


def _as_json(value: Any, hint: Any) -> str | None:
    """Return the value as JSON if it can be restored from that unchanged; else None."""
    try:
        adapter = TypeAdapter(hint)
        text = adapter.dump_json(value).decode()
        again = adapter.validate_json(text)
        return text if type(again) is type(value) and again == value else None
    except Exception:  # whatever its own code says to being looked at
        return None
