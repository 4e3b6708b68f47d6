"""Restores the fields of the crew's tools after replayed uses, and in later tasks, as far as they can be stored."""

import json
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from crewai import Crew
from crewai.tools.base_tool import BaseTool, Tool
from pydantic import TypeAdapter

from runner.adapters.crewai import crew_plan
from runner.engine.work import Work
from runner.journal.object_state import Handle, ObjectState, State, stored

MOST = 256 * 1024  #: characters of what one field has

_OWN = frozenset(BaseTool.model_fields) | frozenset(BaseTool.__private_attributes__)


def _fields(tool: Any) -> dict[str, Any]:
    """The fields of a tool. Empty for CrewAI's own tools and for functions, which keep no state."""
    if not isinstance(tool, BaseTool) or isinstance(tool, Tool) or type(tool).__module__.startswith("crewai."):
        return {}
    fields = {**vars(tool), **(tool.__pydantic_private__ or {})}
    return {name: value for name, value in fields.items() if name not in _OWN}


class ToolStateCarrier:
    """The tools of one crew that have fields of their own, during one task. Their names are those of each process."""

    def __init__(self, crew: Crew) -> None:
        every: list[Any] = []
        tools: dict[str, Any] = {}
        for tool in _of([*crew_plan.staff(crew), *crew.tasks]):
            if not any(tool is other for other in every):
                every.append(tool)
                again = sum(other.name == tool.name for other in every)
                if _fields(tool):
                    tools[f"{tool.name} {again}" if again > 1 else tool.name] = tool
        self._tools = ObjectState(tools, _fields, exactly=True)
        self.seen = self._tools.seen
        self._begun: State = {}
        self._ended = 0  # uses, as they ended: what a later one left is not undone by an earlier one
        self._newest: dict[tuple[str, str], int] = {}

    def take_up(self, work: Work) -> None:
        """Set the fields to what the earlier tasks left."""
        if self._tools.objects:
            for key, record in work.stored_with(work.plan.earlier(work.key)).items():
                if left := record.get("tool_state") or self._of_older(record.get("tools", {})):
                    work.uses.task(key)
                    self._tools.put(left)
        self._begun = self.seen()

    @property
    def left(self) -> State:
        """The fields that this task changed, by tool."""
        return self._changed(self._begun)

    def _changed(self, before: State) -> State:
        state, _lost = self._tools.changed(before)
        small = {
            name: {field: value for field, value in fields.items() if _characters(value) <= MOST}
            for name, fields in state.items()
        }
        return {name: fields for name, fields in small.items() if fields}

    def noted(self, before: State) -> dict[str, Any]:
        """Return what is recorded with the result of a tool use that just ended: the fields that it changed."""
        self._ended += 1
        left = self._changed(before)
        return {"tool_state": left, "ended": self._ended} if left else {}

    def replayed(self, noted: Mapping[str, Any]) -> None:
        """Set the fields as a replayed tool use left them."""
        ended = noted.get("ended", 0)
        self._ended = max(self._ended, ended)
        left = noted.get("tool_state") or self._of_older(noted.get("left", {}))
        for name, state in left.items():
            newer = {field: value for field, value in state.items() if self._newest.get((name, field), 0) < ended}
            self._newest.update(dict.fromkeys(((name, field) for field in newer), ended))
            self._tools.put({name: newer})

    def _of_older(self, left: Mapping[str, Mapping[str, str]]) -> State:
        """Return the fields that an older version recorded: the JSON of their declared types."""
        return {
            name: {
                field: value
                for hints in [_hints(type(self._tools.objects[name]))]
                for field, text in left[name].items()
                for value in [stored(TypeAdapter(hints.get(field, Any)).validate_json(text), exactly=True)]
                if not isinstance(value, Handle)
            }
            for name in left.keys() & self._tools.objects.keys()
        }


def _of(owners: Iterable[Any]) -> Iterable[Any]:
    for owner in owners:
        yield from getattr(owner, "tools", None) or ()


def _characters(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def _hints(kind: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # names that are only there while types are checked
        return {}
