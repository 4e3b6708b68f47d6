"""The kinds of entities in a state, and the code that converts each to data and back."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol

from runner.core.errors import BadCheckpoint


class Kind(Protocol):
    """Stores entities of one kind as data, and restores them with the code at hand.

    The data is JSON without code, keys of clients, or names to be imported.
    """

    name: str
    """Its ``entity_type``."""

    def describe(self, entity: Any, state: Any) -> dict[str, Any]:
        """Return the entity as data."""

    def build(self, data: dict[str, Any], state: Any) -> Any:
        """Build an entity from data alone, without code."""

    def living(self, cls: type[Any]) -> Iterator[Any]:
        """Iterate over the code of ``cls`` that is alive in this process, newest first."""

    def fits(self, code: Any, stored: Any) -> bool:
        """Whether ``stored``, which `build` returned, was made from ``code``, a living entity or class."""

    def graft(self, code: Any, stored: Any, state: Any, *, sure: bool) -> Any:
        """Return a new entity with the code of ``code`` and the data of ``stored``.

        ``sure``: the caller named the code. Raises `BadCheckpoint` if the two do not belong together.
        """

    def adopt(self, code: Any, stored: Any, state: Any) -> None:
        """`graft` without a copy: ``code``, kicked off inside a restored entity, continues as ``stored``."""


_HOMES = {
    "crew": ("runner.crews.snapshot", "CREW"),
    "agent": ("runner.crews.snapshot", "AGENT"),
    "flow": ("runner.flows.entity", "FLOW"),
}
KINDS = frozenset(_HOMES)


def kind_of(entity_type: str) -> Kind:
    """Return the kind with this name. Raises `BadCheckpoint`."""
    if entity_type not in KINDS:
        raise BadCheckpoint(f"the checkpoint holds an entity of type {entity_type!r}, which this version does not know")
    module, name = _HOMES[entity_type]
    kind: Kind = getattr(import_module(module), name)
    return kind
