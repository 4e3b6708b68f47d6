"""Reports when two concurrent methods changed the same field of the state. Pure."""

from collections.abc import Collection, Iterable, Sequence

Changed = tuple[str, Collection[str]]
"""A method, and the fields of the state that it changed."""


def others(path: str, since: Iterable[Changed]) -> list[str]:
    """Return the methods that changed the field of a path among those that finished ``since`` a method began."""
    found = [method for method, names in since if any(path == name or path.startswith(f"{name}.") for name in names)]
    return list(dict.fromkeys(found))


def format_conflict(paths: Sequence[str], method: str, since: Sequence[Changed]) -> str:
    """Describe a conflict: the fields, the other methods, and that the value of ``method``, the later one, wins."""
    by: dict[str, list[str]] = {}
    for path in paths:
        by.setdefault(" and ".join(others(path, since)) or "another method", []).append(path)
    text = "; ".join(f"{', '.join(group)}: changed by {who} while {method} was at work" for who, group in by.items())
    return f"{text}; the values of {method} are kept, since it finished last"
