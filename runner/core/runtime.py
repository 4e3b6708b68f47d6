"""Lazy imports by name: the public names of a package, and the engine that performs a kickoff.

`runner` wires the engines, which import the crews' classes, by name: the first kickoff imports its own.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

_engines: dict[str, str] = {}


def wire(**engines: str) -> None:
    """Set which module runs the kickoffs of each kind ("crews", "flows")."""
    _engines.update(engines)


def engine_of(kind: str) -> Any:
    """Return the module that runs the kickoffs of this kind. Raises `KeyError` if none is set."""
    return import_module(_engines[kind])


def names_from(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package; ``homes`` maps modules to their names, separated by blanks."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return find
