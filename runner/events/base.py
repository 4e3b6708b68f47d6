"""The base class of events, and loading a stored event as its own class."""

import weakref
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from runner.core.annotations import own_annotations
from runner.core.redaction import redact
from runner.events.ids import make_event_id

__all__ = ["BaseEvent", "Payload"]

classes: "weakref.WeakValueDictionary[str, type[BaseEvent]]" = weakref.WeakValueDictionary()
"""The class of each type of event, filed when it is made: see `runner.events.loading`."""

Payload = Annotated[Any, Field(exclude=True, repr=False)]
"""A field for live objects, outputs and prompts: handlers see it, nothing that is stored has it."""


class BaseEvent(BaseModel):
    """Something that happened.

    The bus sets the ids of related events and ``emission_sequence`` when the event is emitted. ``type`` determines the
    class of a stored event (`load_event`); this class keeps fields that it does not know.
    """

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    type: str
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    event_id: str = Field(default_factory=make_event_id)
    parent_event_id: str | None = None
    previous_event_id: str | None = None
    triggered_by_event_id: str | None = None
    started_event_id: str | None = None
    emission_sequence: int | None = None
    source_type: str | None = None
    source_fingerprint: str | None = None
    task_id: str | None = None
    task_name: str | None = None
    agent_id: str | None = None
    agent_role: str | None = None

    recorded: ClassVar[bool] = True
    """Whether it is part of what a checkpoint keeps of the history."""
    _payload: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register the class under its type, if it has one of its own."""
        super().__pydantic_init_subclass__(**kwargs)
        cls._payload = frozenset(name for name, field in cls.model_fields.items() if field.exclude)
        default = cls.model_fields["type"].default
        if isinstance(default, str) and "type" in own_annotations(cls):
            classes[default] = cls

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002 - the hook's name
        """Set the ids of the current task and agent, if they were not given."""
        task = getattr(self, "task", None) or getattr(self, "from_task", None)
        agent = getattr(self, "agent", None) or getattr(self, "from_agent", None)
        if task is not None:
            self.task_id = self.task_id or _text(task, "id") or _text(task, "name")
            self.task_name = self.task_name or _text(task, "name") or _text(task, "description")
            agent = agent or getattr(task, "agent", None)
        if agent is not None:
            self.agent_id = self.agent_id or _text(agent, "id")
            self.agent_role = self.agent_role or _text(agent, "role")

    def slim(self) -> Self:
        """Return a copy without the payload, for the record."""
        return self.model_copy(update={name: None for name in self._payload if self.__dict__.get(name) is not None})

    def stored(self) -> dict[str, Any]:
        """Return JSON-able data without payload. Never raises: one odd field must not prevent every checkpoint."""
        try:
            return self.model_dump(mode="json", exclude_none=True, fallback=_described, warnings=False)
        except (PydanticSerializationError, TypeError, ValueError, RecursionError):
            known = {name: self.__dict__[name] for name in BaseEvent.model_fields}
            return BaseEvent.model_construct(**known).model_dump(
                mode="json", exclude_none=True, fallback=_described, warnings=False
            )

    def to_json(self, exclude: set[str] | None = None) -> dict[str, Any]:
        """`stored`, without the fields in ``exclude``."""
        return {name: value for name, value in self.stored().items() if name not in (exclude or ())}


class KnownEvent(BaseEvent):
    """An event with a fixed set of fields; others are dropped."""

    model_config = ConfigDict(extra="ignore")


def _text(thing: Any, name: str) -> str | None:
    value = getattr(thing, name, None)
    return str(value) if value else None


def _described(value: Any) -> str:
    return f"<{type(value).__qualname__}>"


def _one_line(value: Any) -> Any:
    if value is None:
        return None
    return redact(value if isinstance(value, str) else f"{type(value).__name__}: {value}")


ErrorText = Annotated[str, BeforeValidator(_one_line)]
"""The text of an error, without secrets; an exception is taken too."""
