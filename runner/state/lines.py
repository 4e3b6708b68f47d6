"""Lines of checkpoints that kickoffs in this process have finished, and which the next one of the same crew may use up.

A kickoff prunes its own line only: another process may write beside it. So that a crew which is kicked off again and
again leaves ``max_checkpoints`` and not as many for each time, its finished lines count with the new one, newest first.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, str, str]
"""Provider, location and branch."""


@dataclass(slots=True)
class _Left:
    """What one entity left: the head of each finished line and how many checkpoints it may have, oldest line first."""

    entity: "weakref.ref[Any]"
    lines: dict[Place, list[tuple[str, int]]] = field(default_factory=dict)


_left: dict[int, _Left] = {}


def finished(entity: Any, place: Place, head: str, count: int) -> None:
    """A kickoff of ``entity`` ended well; its line ends at ``head``."""
    known = _left.get(id(entity))
    if known is None or known.entity() is not entity:
        key = id(entity)
        known = _left[key] = _Left(weakref.ref(entity, lambda _: _forget(key)))
    known.lines.setdefault(place, []).append((head, count))


def surplus(entity: Any, place: Place, allowed: int) -> list[tuple[str, int]]:
    """Of the finished lines, those that are too long now: the head of each, and how many of it may stay.

    ``allowed`` is how many all of them may have together. What is told here is taken as done.
    """
    known = _left.get(id(entity))
    if known is None or known.entity() is not entity or place not in known.lines:
        return []
    cut, kept = [], []
    for head, count in reversed(known.lines[place]):
        stays = min(count, max(0, allowed))
        allowed -= stays
        if stays < count:
            cut.append((head, stays))
        if stays:
            kept.append((head, stays))
    known.lines[place] = kept[::-1]
    return cut


def _forget(key: int) -> None:
    _left.pop(key, None)
