"""The definition of a flow, read once from its class: methods and conditions on names and labels. Pure data."""

import difflib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from runner.core.errors import BadFlow

MARK = "__flow_method__"
"""The attribute under which a decorated function carries its `Method`."""

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


@dataclass(frozen=True, slots=True)
class Learning:
    """How a method learns from answers."""

    source: str = "hitl"
    limit: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Feedback:
    """The options of ``@human_feedback``. ``llm`` is a model, or a name that becomes one when it is called."""

    message: str
    emit: tuple[str, ...] = ()
    llm: Any = None
    default_outcome: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provider: Any = None
    learning: Learning | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """One method of a flow.

    Attributes:
        start: whether it is an entry point.
        when: its condition; None for an entry point that runs at once.
        router: whether its result is a label.
        emit: the labels that it declares.
        entry: whether it runs at once, and again whenever its condition is met.
    """

    name: str
    start: bool = False
    when: Condition | None = None
    router: bool = False
    emit: tuple[str, ...] = ()
    feedback: Feedback | None = None
    max_retries: int = 0
    retry_delay: float = 1.0
    timeout: float | None = None
    entry: bool = False


@dataclass(frozen=True)
class FlowDefinition:
    """The methods of a flow class, in source order."""

    name: str
    methods: Mapping[str, Method]

    @cached_property
    def starts(self) -> tuple[Method, ...]:
        """The entry points of a kickoff: those without a condition, or all of them if each has one."""
        entries = [method for method in self.methods.values() if method.start]
        return tuple(m for m in entries if m.when is None or m.entry) or tuple(entries)

    @cached_property
    def listeners(self) -> Mapping[str, tuple[Method, ...]]:
        """For each name, the methods that listen to it."""
        found: dict[str, list[Method]] = {}
        for method in self.methods.values():
            for name in sorted(method.when.names) if method.when else ():
                found.setdefault(name, []).append(method)
        return {name: tuple(methods) for name, methods in found.items()}

    def to_data(self) -> dict[str, Any]:
        """Return as JSON what decides which methods run and which labels people choose from, without code."""
        methods = []
        for method in self.methods.values():
            found: dict[str, Any] = {"name": method.name}
            found.update({name: True for name in ("start", "router", "entry") if getattr(method, name)})
            if method.when is not None:
                found["when"] = method.when.to_data()
            if method.timeout is not None:
                found["timeout"] = method.timeout
            if method.feedback is not None:
                found["labels"] = list(method.feedback.emit)
            methods.append(found)
        return {"name": self.name, "methods": methods}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "FlowDefinition":
        """The inverse of `to_data`."""
        methods = {}
        for one in data["methods"]:
            when = Condition.from_data(one["when"]) if "when" in one else None
            methods[one["name"]] = Method(
                one["name"],
                start=one.get("start", False),
                when=when,
                router=one.get("router", False),
                timeout=one.get("timeout"),
                entry=one.get("entry", False),
                feedback=Feedback("", tuple(one["labels"])) if "labels" in one else None,
            )
        return cls(data["name"], methods)


def define(flow_class: type) -> FlowDefinition:
    """Read a flow class with the decorated methods of its bases. Raises `BadFlow` for a method that can never run."""
    methods: dict[str, Method] = {}
    for owner in reversed(flow_class.__mro__):
        for name, value in vars(owner).items():
            drafted = getattr(value, MARK, None)
            if isinstance(drafted, Method):
                methods[name] = replace(drafted, name=name)
            elif name in methods and not callable(value):
                del methods[name]  # a subclass took it away: ``method = None``
    _refuse_impossible(flow_class.__name__, methods)
    own = getattr(flow_class, "name", None)
    return FlowDefinition(own if isinstance(own, str) else flow_class.__name__, methods)


def _refuse_impossible(flow: str, methods: Mapping[str, Method]) -> None:
    has_router = any(method.router for method in methods.values())
    for method in methods.values():
        if method.router and not method.start and method.when is None:
            raise BadFlow(
                f"Invalid flow definition for {flow}: router {method.name!r} listens to nothing: "
                "give it a method to listen to, or stack @start() on it"
            )
        if method.when is None:
            continue
        if method.name in method.when.names:
            raise BadFlow(f"Invalid flow definition for {flow}: method {method.name!r} listens to itself")
        if not has_router and not method.when.is_met(methods.keys()):
            unknown = next(name for name in sorted(method.when.names) if name not in methods)
            near = difflib.get_close_matches(unknown, methods, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "no method has that name, and no router could return it"
            raise BadFlow(f"Invalid flow definition for {flow}: {method.name!r} listens to {unknown!r}; {hint}")
