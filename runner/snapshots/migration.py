"""Migrates older checkpoints to the current version, one version after the other."""

import logging
import re
from collections.abc import Callable
from typing import Any

from runner.core.compatibility import OTHER_VERSIONS, OTHER_WRITER, VERSION_KEY
from runner.core.errors import BadCheckpoint

VERSION = "1.0.0"
"""The version of the form that checkpoints are written in."""

logger = logging.getLogger("runner.snapshots")

Data = dict[str, Any]


def get_version() -> str:
    """Return the version that checkpoints are written with."""
    return VERSION


def migrate(data: Data) -> Data:
    """Return ``data`` in the current form. Raises `BadCheckpoint` if a newer version wrote it."""
    raw = data.get(VERSION_KEY)
    if raw is None:
        logger.warning("Checkpoint has no %s, treating as 0.0.0", VERSION_KEY)
    stored = _number(raw)
    if raw is not None and not any(stored):
        logger.warning("Checkpoint has the %s %r, which is not a version, treating as 0.0.0", VERSION_KEY, raw)
    if stored > _number(VERSION):
        raise BadCheckpoint(
            f"the checkpoint was written by version {raw}, which is newer than {VERSION} here: "
            + (
                f"only {OTHER_WRITER} resumes from its own"
                if OTHER_VERSIONS[0] <= stored < OTHER_VERSIONS[1]
                else "install a newer crew-runner to resume from it"
            )
        )
    if raw is not None and stored != _number(VERSION):
        logger.debug("Migrating checkpoint from %s to %s", raw, VERSION)
    for version, change in _CHANGES:
        if stored < _number(version):
            data = change(data)
    return {**data, VERSION_KEY: VERSION}


def _name_the_entities(data: Data) -> Data:
    """Before 1.0.0, the type of an entity, the branch and the event record were optional."""

    def named(entity: Any) -> Any:
        if not isinstance(entity, dict) or "entity_type" in entity:
            return entity
        kind = "crew" if "tasks" in entity else "agent" if "role" in entity else "flow"
        return {"entity_type": kind, **entity}

    return {
        **data,
        "branch": data.get("branch") or "main",
        "parent_id": data.get("parent_id"),
        "entities": [named(entity) for entity in data.get("entities") or []],
        "event_record": data.get("event_record") or {"nodes": {}},
    }


_CHANGES: tuple[tuple[str, Callable[[Data], Data]], ...] = (("1.0.0", _name_the_entities),)


def _number(version: Any) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", version) if isinstance(version, str) else None
    parts = [int(part) for part in found[0].split(".")] if found else []
    return tuple([*parts, 0, 0, 0][:3])
