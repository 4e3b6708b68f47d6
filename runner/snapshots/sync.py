"""Copies runtime attributes to the public ``checkpoint_`` fields."""

from collections.abc import Iterable
from typing import Any


def sync_checkpoint_fields(entity: Any) -> None:
    """Update an entity's ``checkpoint_`` fields from its runtime attributes."""
    if getattr(entity, "entity_type", None) in ("agent", "crew"):
        entity.checkpoint_kickoff_event_id = entity.kickoff_event_id
    own = getattr(entity, "sync_checkpoint_fields", None)
    if callable(own):
        own()


def prepare_entities(root: Iterable[Any]) -> None:
    """Call `sync_checkpoint_fields` for each entity."""
    for entity in root:
        sync_checkpoint_fields(entity)
