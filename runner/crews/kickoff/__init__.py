"""``kickoff()`` in this process, with the same plan and executor as on the fleet.

With a `CheckpointConfig`, what happens is recorded in a `RuntimeState`, and checkpoints are written as it says.
"""

from runner.crews.kickoff.agents import ask, prepare_asking
from runner.crews.kickoff.crews import kickoff
from runner.crews.kickoff.for_each import in_thread, kickoff_for_each, kickoff_for_each_async, replay
from runner.snapshots.restore import apply_checkpoint, restore, take_up

__all__ = [
    "apply_checkpoint",
    "ask",
    "in_thread",
    "kickoff",
    "kickoff_for_each",
    "kickoff_for_each_async",
    "prepare_asking",
    "replay",
    "restore",
    "take_up",
]
