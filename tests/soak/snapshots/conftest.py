"""The fixtures of the small ones."""

from ...integration.snapshots.conftest import events_of, kill_often, pairs_up, place

__all__ = ["events_of", "kill_often", "pairs_up", "place"]
