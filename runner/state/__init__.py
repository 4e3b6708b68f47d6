"""The state of what runs in this process, its checkpoints, and how it comes back from one."""

from runner.config import CheckpointConfig
from runner.state.kinds import Kind, kind_of
from runner.state.migration import VERSION, get_crewai_version, migrate
from runner.state.progress import Progress, TaskProgress
from runner.state.resolve import OPTED_OUT, find_checkpoint, inside, resolve_checkpoint
from runner.state.restore import apply_checkpoint, restore
from runner.state.runtime import RuntimeState
from runner.state.scope import running, settings_of
from runner.state.signals import signals_watched, watching
from runner.state.sync import prepare_entities, sync_checkpoint_fields
from runner.state.writer import install

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
    "get_crewai_version",
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
