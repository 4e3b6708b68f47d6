"""The record of events: nodes with typed edges between them."""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, PrivateAttr, model_serializer

from runner.core.fork_safe_lock import ForkSafeLock
from runner.events.base import BaseEvent
from runner.events.loading import load_event
from runner.events.pairs import SCOPE_STARTING_EVENTS

__all__ = ["EdgeType", "EventNode", "EventRecord"]

EdgeType = Literal["parent", "child", "triggered_by", "trigger", "previous", "next", "started", "completed_by"]

#: The field of an event that names a relative, the edge to it, and the edge back.
_RELATIVES: tuple[tuple[str, EdgeType, EdgeType], ...] = (
    ("parent_event_id", "parent", "child"),
    ("triggered_by_event_id", "triggered_by", "trigger"),
    ("previous_event_id", "previous", "next"),
    ("started_event_id", "started", "completed_by"),
)
_BACK: dict[EdgeType, EdgeType] = {
    one: other for _, there, back in _RELATIVES for one, other in ((there, back), (back, there))
}

MAX_NODES = 10_000
"""How many nodes a record keeps."""


class EventNode(BaseModel):
    """One event and its edges."""

    event: Annotated[BaseEvent, BeforeValidator(load_event), PlainSerializer(lambda event: event.stored())]
    edges: dict[EdgeType, list[str]] = Field(default_factory=dict)

    _stored_event: dict[str, Any] | None = PrivateAttr(default=None)

    def add_edge(self, edge_type: EdgeType, target_id: str) -> None:
        """Add an edge to another node, once."""
        known = self.edges.setdefault(edge_type, [])
        if target_id not in known[-1:]:
            known.append(target_id)

    def neighbors(self, edge_type: EdgeType) -> list[str]:
        """Return the ids at the other ends of the edges of this type."""
        return self.edges.get(edge_type, [])

    def stored_event(self) -> dict[str, Any]:
        """Return the event as JSON-able data. It does not change, so it is rendered once, not for each checkpoint."""
        if self._stored_event is None:
            self._stored_event = self.event.stored()
        return self._stored_event

    def stored(self) -> dict[str, Any]:
        """As JSON-able data."""
        return {"event": self.stored_event(), "edges": {kind: list(ids) for kind, ids in self.edges.items()}}


class EventRecord(BaseModel):
    """Events and their relations.

    Safe to use from several threads. Beyond ``max_nodes`` the oldest node is removed, but never a start that has not
    ended, because a resume needs it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    nodes: dict[str, EventNode] = Field(default_factory=dict)
    max_nodes: int = Field(default=MAX_NODES, ge=1, exclude=True)

    _lock: ForkSafeLock = PrivateAttr(default_factory=ForkSafeLock)

    def compact(self) -> dict[str, Any]:
        """Return the form for a checkpoint: events alone, as they name their relatives. `load` rebuilds the edges."""
        with self._lock:
            return {"nodes": {event_id: {"event": node.stored_event()} for event_id, node in self.nodes.items()}}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `compact`, and of a dump with edges."""
        nodes = data.get("nodes") or {}
        if any("edges" in node for node in nodes.values()):
            return cls.model_validate(data)
        record = cls()
        for node in nodes.values():
            record.add(load_event(node["event"]))
        return record

    def add(self, event: BaseEvent) -> EventNode:
        """Add an event, without its payload, and connect it with its recorded relatives."""
        with self._lock:
            node = EventNode.model_construct(event=event.slim(), edges={})
            self.nodes[event.event_id] = node
            for field, there, back in _RELATIVES:
                relative = getattr(event, field)
                if relative and relative in self.nodes and relative != event.event_id:
                    node.add_edge(there, relative)
                    self.nodes[relative].add_edge(back, event.event_id)
            if len(self.nodes) > self.max_nodes:
                self._drop_oldest()
            return node

    def get(self, event_id: str) -> EventNode | None:
        """Return the node of an event."""
        with self._lock:
            return self.nodes.get(event_id)

    def descendants(self, event_id: str) -> list[EventNode]:
        """Return all nodes below one, level by level, without itself."""
        with self._lock:
            found: dict[str, EventNode] = {}
            waiting = deque([event_id])
            while waiting:
                node = self.nodes.get(waiting.popleft())
                for child in node.neighbors("child") if node else ():
                    if child in self.nodes and child not in found and child != event_id:
                        found[child] = self.nodes[child]
                        waiting.append(child)
            return list(found.values())

    def roots(self) -> list[EventNode]:
        """Return the nodes without a recorded parent."""
        with self._lock:
            return [node for node in self.nodes.values() if not node.neighbors("parent")]

    def all_nodes(self) -> list[EventNode]:
        """Return all nodes, in the order in which they were added."""
        with self._lock:
            return list(self.nodes.values())

    def clear(self) -> None:
        """Remove all nodes."""
        with self._lock:
            self.nodes.clear()

    def open_start(self, event_type: str, task_id: str) -> str | None:
        """Return the id of a task's latest event of this type, by emission sequence; None if that one has ended."""
        with self._lock:
            latest = _latest(self._starts(event_type, task_id))
            return latest.event.event_id if latest is not None and not latest.neighbors("completed_by") else None

    def latest_open(self, event_type: str, task_id: str) -> str | None:
        """Return the id of a task's latest event of this type that has not ended; None if all have."""
        with self._lock:
            latest = _latest([one for one in self._starts(event_type, task_id) if not one.neighbors("completed_by")])
            return latest.event.event_id if latest is not None else None

    def _starts(self, event_type: str, task_id: str) -> list[EventNode]:
        return [n for n in self.nodes.values() if n.event.type == event_type and n.event.task_id == task_id]

    def last_sequence(self) -> int:
        """Return the highest sequence number in the record."""
        with self._lock:
            return max((node.event.emission_sequence or 0 for node in self.nodes.values()), default=0)

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, event_id: object) -> bool:
        return event_id in self.nodes

    @model_serializer(mode="plain")
    def _stored(self) -> dict[str, Any]:
        # The lock is held over the whole of it: what is dumped was so at one moment.
        with self._lock:
            return {"nodes": {event_id: node.stored() for event_id, node in self.nodes.items()}}

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        with self._lock:
            copy = {
                event_id: EventNode.model_construct(
                    event=node.event, edges={kind: list(ids) for kind, ids in node.edges.items()}
                )
                for event_id, node in self.nodes.items()
            }
            return type(self)(max_nodes=self.max_nodes).model_copy(update={"nodes": copy})

    def _drop_oldest(self) -> None:
        def is_open(node: EventNode) -> bool:
            return node.event.type in SCOPE_STARTING_EVENTS and not node.neighbors("completed_by")

        finished: Callable[[tuple[str, EventNode]], bool] = lambda item: not is_open(item[1])  # noqa: E731 - a type for what `filter` takes
        # The newest is kept, whatever it is: its relatives may be on their way.
        oldest = next(filter(finished, islice(self.nodes.items(), len(self.nodes) - 1)), None)
        if oldest is None:
            return
        event_id, node = oldest
        del self.nodes[event_id]
        for kind, targets in node.edges.items():
            for target in targets:
                back = self.nodes[target].neighbors(_BACK[kind]) if target in self.nodes else []
                if event_id in back:
                    back.remove(event_id)


def _latest(nodes: list[EventNode]) -> EventNode | None:
    """The one with the highest sequence number; of several, the one added last."""
    return max(reversed(nodes), key=lambda node: node.event.emission_sequence or 0, default=None)
