"""The difference that a method made to a JSON state: fields set, added and removed.

`apply_patch` to the state that the method began with gives the state it ended with; to one that others have changed
since, it merges: see `runner.flows.state`. Kept with each output, patches make the state of any position. In this
process the same rules `merge` live values.

A patch is a list: ``["s", value]`` sets, ``["a", items]`` appends to a list, ``["d", {key: patch}]`` goes into a dict,
``["x"]`` removes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from runner.flows import state as states
from runner.flows.state import MISSING, same

Patch = list[Any]

Changed = tuple[str, Collection[str]]
"""A method, and the fields of the state that it changed."""


def diff(base: Any, mine: Any) -> Patch | None:
    """Return the patch that makes ``mine`` from ``base``; None if they are equal."""
    if same(base, mine):
        return None
    if mine is MISSING:
        return ["x"]
    if type(mine) is dict:
        return ["d", diff_all(base if isinstance(base, dict) else {}, mine)]
    if type(mine) is list:
        items = base if isinstance(base, list) else []
        if len(mine) >= len(items) and same(mine[: len(items)], items):
            return ["a", mine[len(items) :]]
    return ["s", mine]


def apply_patch(patch: Patch, theirs: Any, base: Any, path: str, conflicts: list[str]) -> Any:
    """``theirs`` with a patch that was made against ``base``. Paths of what both changed are added to ``conflicts``."""
    kind, untouched = patch[0], same(theirs, base)
    if kind == "d":
        if isinstance(theirs, dict) or untouched:
            return _into(patch[1], theirs, base, path, conflicts)
        conflicts.append(path)
        return _into(patch[1], base, base, path, [])
    if kind == "a":
        known = base if isinstance(base, list) else []
        if isinstance(theirs, list) and same(theirs[: len(known)], known):
            return theirs + patch[1]
        if not untouched:
            conflicts.append(path)
        return known + patch[1]
    mine = MISSING if kind == "x" else patch[1]
    if untouched:
        return mine
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return _into(diff_all(base if isinstance(base, dict) else {}, mine), theirs, base, path, conflicts)
    if isinstance(mine, BaseModel) and type(theirs) is type(mine) is type(base):
        old, new = dict(base), dict(mine)  # by field
        return mine.model_copy(update=_into(diff_all(old, new), dict(theirs), old, path, conflicts))
    if isinstance(mine, set) and isinstance(theirs, set):
        known_items = base if isinstance(base, set) else set()
        return (theirs | (mine - known_items)) - (known_items - mine)
    # Two that counted up to the same number each lost sight of the other; two that set the same flag agree.
    counted = isinstance(mine, int | float) and not isinstance(mine, bool)
    if counted or not same(theirs, mine):
        conflicts.append(path)
    return mine


def apply_all(
    patches: Mapping[str, Patch], theirs: Mapping[str, Any], base: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """A state with patches by field, and where they conflict. Without ``base``, as if nothing else had changed it."""
    conflicts: list[str] = []
    there = dict(theirs)
    return _into(patches, there, there if base is None else dict(base), "", conflicts), conflicts


def diff_all(base: Mapping[str, Any], mine: Mapping[str, Any]) -> dict[str, Patch]:
    """Return the patches that make ``mine`` from ``base``, by field."""
    found = {name: diff(base.get(name, MISSING), mine.get(name, MISSING)) for name in {**base, **mine}}
    return {name: patch for name, patch in found.items() if patch is not None}


def merge(
    base: Mapping[str, Any], theirs: Mapping[str, Any], mine: Mapping[str, Any]
) -> tuple[states.Patch, list[str]]:
    """Apply to ``theirs`` what a method changed between ``base`` and ``mine``. Returns the changes and the conflicts.

    Conflicts are paths, as in ``"report.title"``. Values that no other method changed remain the method's own objects.
    """
    others = {name for name in theirs if not same(theirs[name], base.get(name, MISSING))}
    found, conflicts = apply_all(diff_all(base, mine), theirs, base)
    own = {name: mine[name] for name in found if name in mine and name not in others}
    return states.changes(theirs, {**found, **own}), conflicts


def _into(patches: Mapping[str, Patch], theirs: Any, base: Any, path: str, conflicts: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = dict(theirs) if isinstance(theirs, dict) else {}
    known = base if isinstance(base, dict) else {}
    for key, patch in patches.items():
        place = f"{path}.{key}" if path else key
        value = apply_patch(patch, found.get(key, MISSING), known.get(key, MISSING), place, conflicts)
        if value is MISSING:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def changed_by(path: str, since: Iterable[Changed]) -> list[str]:
    """Return the methods that changed the field of a path among those that finished ``since`` a method began."""
    found = [method for method, names in since if any(path == name or path.startswith(f"{name}.") for name in names)]
    return list(dict.fromkeys(found))


def format_conflict(paths: Sequence[str], method: str, since: Sequence[Changed]) -> str:
    """Describe a conflict: the fields, the other methods, and that the value of ``method``, the later one, wins."""
    by: dict[str, list[str]] = {}
    for path in paths:
        by.setdefault(" and ".join(changed_by(path, since)) or "another method", []).append(path)
    text = "; ".join(f"{', '.join(group)}: changed by {who} while {method} was at work" for who, group in by.items())
    return f"{text}; the values of {method} are kept, since it finished last"
