"""Trigger conditions: ``or_`` and ``and_`` over method names and router labels."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from runner.core.errors import BadFlow

_BY_WORD: dict[Any, Literal["and", "or"]] = {"AND": "and", "OR": "or", "and": "and", "or": "or"}


@dataclass(frozen=True, slots=True)
class Condition:
    """A tree of names. Method names and router labels share one namespace."""

    kind: Literal["and", "or"]
    parts: "tuple[str | Condition, ...]"

    @property
    def names(self) -> frozenset[str]:
        """The names of all methods in the condition."""
        return frozenset().union(*({part} if isinstance(part, str) else part.names for part in self.parts))

    @property
    def has_alternatives(self) -> bool:
        """Whether more than one event can meet it, so that it must be kept from firing twice."""
        return self.kind == "or" and len(self.parts) > 1

    def is_met(self, received: Set[str]) -> bool:
        """Whether the received names meet it."""
        found = (part in received if isinstance(part, str) else part.is_met(received) for part in self.parts)
        return all(found) if self.kind == "and" else any(found)

    def to_data(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {self.kind: [part if isinstance(part, str) else part.to_data() for part in self.parts]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Condition":
        """The inverse of `to_data`."""
        ((kind, parts),) = data.items()
        return cls(_BY_WORD[kind], tuple(part if isinstance(part, str) else cls.from_data(part) for part in parts))

    def __str__(self) -> str:
        return f"{self.kind}_({', '.join(map(str, self.parts))})" if len(self.parts) > 1 else str(self.parts[0])


def or_(*triggers: Any) -> Condition:
    """A condition that is met by any of the triggers: methods, names, labels or other conditions."""
    return _condition("or", triggers)


def and_(*triggers: Any) -> Condition:
    """A condition that is met once all of the triggers have occurred."""
    return _condition("and", triggers)


def condition(trigger: Any) -> Condition:
    """Convert the argument of ``@listen(...)`` to a condition. Raises `BadFlow`."""
    part = _part(trigger)
    return part if isinstance(part, Condition) else Condition("or", (part,))


def _condition(kind: Literal["and", "or"], triggers: Any) -> Condition:
    if not triggers:
        raise BadFlow(f"{kind}_() needs at least one method, name or label")
    return Condition(kind, tuple(dict.fromkeys(_part(trigger) for trigger in triggers)))


def _part(trigger: Any) -> "str | Condition":
    if isinstance(trigger, str | Condition):
        return trigger
    if isinstance(trigger, dict) and trigger.get("type") in _BY_WORD and trigger.get("conditions"):
        return _condition(_BY_WORD[trigger["type"]], trigger["conditions"])
    name = getattr(trigger, "__name__", None)
    if callable(trigger) and isinstance(name, str):
        return name
    raise BadFlow(f"Invalid condition: {trigger!r} is not a method, name, label, or_() or and_()")
