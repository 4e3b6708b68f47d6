"""Who performs a ``kickoff()``: the classes that authors use know it by a name, not by an import.

The engines of crews, agents and flows import those classes. `runner` itself wires the two together, once, by the names
of modules: an engine is imported when the first kickoff asks for it.
"""

from importlib import import_module
from typing import Any

_engines: dict[str, str] = {}


def wire(**engines: str) -> None:
    """Say which module performs what, by kind ("crews", "flows")."""
    _engines.update(engines)


def engine_of(kind: str) -> Any:
    """The module that performs the kickoffs of this kind. Raises `KeyError` where none is wired."""
    return import_module(_engines[kind])
