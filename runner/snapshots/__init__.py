"""The state of kickoffs in this process, its checkpoints, and restoring from one."""

from runner.providers.config import CheckpointConfig
from runner.snapshots.kinds import Kind, kind_of
from runner.snapshots.migration import VERSION, get_version, migrate
from runner.snapshots.progress import Progress, TaskProgress
from runner.snapshots.resolve import OPTED_OUT, find_checkpoint, inside, resolve_checkpoint
from runner.snapshots.restore import apply_checkpoint, restore
from runner.snapshots.runtime import RuntimeState, prepare_entities, sync_checkpoint_fields
from runner.snapshots.scope import running, settings_of
from runner.snapshots.signals import signals_watched, watching
from runner.snapshots.writer import install

__all__ = [
    "OPTED_OUT",
    "VERSION",
    "CheckpointConfig",
    "Kind",
    "Progress",
    "RuntimeState",
    "TaskProgress",
    "apply_checkpoint",
    "find_checkpoint",
    "get_version",
    "inside",
    "kind_of",
    "migrate",
    "prepare_entities",
    "resolve_checkpoint",
    "restore",
    "running",
    "settings_of",
    "signals_watched",
    "sync_checkpoint_fields",
    "watching",
]

install()
