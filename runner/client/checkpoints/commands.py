"""Commands on a checkpoint that a person chose, and who carries them out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from runner.client.checkpoints.model import Checkpoint
from runner.core.errors import Conflict


@dataclass(frozen=True, slots=True)
class Command:
    """Resume from a checkpoint on its branch, or fork it: a branch of its own, with changes."""

    verb: Literal["resume", "fork"]
    checkpoint: Checkpoint
    branch: str = ""  #: of a fork; "": a name is made
    inputs: Mapping[str, Any] = field(default_factory=dict)  #: those that are to be other ones
    edits: Mapping[str, str] = field(default_factory=dict)  #: task -> its output, instead


class CommandHandler(Protocol):
    """Who carries commands out."""

    @property
    def refusal(self) -> str:
        """Why nothing can be carried out here, and what to do, in one line; "" if it can."""

    @property
    def leaves_screen(self) -> bool:
        """Whether a screen must be left first: the work itself is done in this process."""

    def check(self, command: Command) -> None:
        """Raise `RunnerError` if it would be refused, as far as that can be told before a screen is left."""

    def execute(self, command: Command) -> str:
        """Do it. Returns what was done, in one line; raises `RunnerError`."""


class ReadOnlyHandler:
    """Looks only."""

    leaves_screen = False

    def __init__(self, refusal: str) -> None:
        self.refusal = refusal

    def check(self, command: Command) -> None:
        """Refuse."""
        self.execute(command)

    def execute(self, command: Command) -> str:
        """Refuse."""
        raise Conflict(f"{command.verb}: {self.refusal}")
