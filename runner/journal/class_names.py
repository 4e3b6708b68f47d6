"""The names by which records know classes, and the classes that have them now."""

import re
import sys
from typing import Any

from runner.core import encoding

_OF_BUNDLE = re.compile(r"_crew_[0-9a-f]{16}\.")  #: how modules of a bundle are named


def name_of(of: type) -> str:
    """Return the module and name of a type."""
    return f"{of.__module__}:{of.__qualname__}"


def find_class(name: str) -> type | None:
    """Return the class of values that has the name; None if there is none."""
    found = loaded(name)
    return found if encoding.is_class_of_values(found) else None


def loaded(name: str) -> Any:
    """What stands under a name of `name_of` in a module that is imported already: nothing is imported for a record."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) or _same_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _same_module(name: str) -> Any:
    """The module of the code of now, where a record names the one of other code of the same run."""
    _, dot, inside = name.partition(".")
    if not dot or not _OF_BUNDLE.match(name):
        return None
    found = [one for known, one in list(sys.modules.items()) if _OF_BUNDLE.sub("", known) == inside != known]
    return found[0] if len(found) == 1 else None
