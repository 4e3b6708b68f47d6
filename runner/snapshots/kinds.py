"""The kinds of entities a state holds, and where each says how it becomes data and comes back."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from runner.core.errors import BadCheckpoint


class Kind(Protocol):
    """How entities of one kind are stored as data, and restored with the code at hand.

    Data is JSON and holds no code, no key of a client, and nothing to be imported by name.
    """

    name: str
    """Its ``entity_type``."""

    def describe(self, entity: Any, state: Any) -> dict[str, Any]:
        """The entity as data."""

    def build(self, data: dict[str, Any], state: Any) -> Any:
        """An entity from data alone: all that is known without code."""

    def living(self, cls: type[Any]) -> Iterator[Any]:
        """Code of ``cls`` that is alive in this process, the newest first."""

    def fits(self, code: Any, stored: Any) -> bool:
        """Whether ``code``, a living entity (or class), is what ``stored``, which `build` gave, was made from."""

    def graft(self, code: Any, stored: Any, state: Any, *, sure: bool) -> Any:
        """A new entity: the code of ``code`` with the data of ``stored``. ``sure``: the caller named the code.

        Raises `BadCheckpoint` if the two have nothing to do with each other.
        """

    def adopt(self, code: Any, stored: Any, state: Any) -> None:
        """`graft` without a copy: ``code``, kicked off inside of what was restored, continues as ``stored``."""


@dataclass(frozen=True, slots=True)
class _Home:
    module: str
    name: str


_HOMES = {
    "crew": _Home("runner.crews.snapshot", "CREW"),
    "agent": _Home("runner.crews.snapshot", "AGENT"),
    "flow": _Home("runner.flows.entity", "FLOW"),
}
KINDS = frozenset(_HOMES)


def kind_of(entity_type: str) -> Kind:
    """The kind of this name. Raises `BadCheckpoint`."""
    home = _HOMES.get(entity_type)
    if home is None:
        raise BadCheckpoint(f"the checkpoint holds a {entity_type!r}, which this version does not know")
    kind: Kind = getattr(import_module(home.module), home.name)
    return kind
