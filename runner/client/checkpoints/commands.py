"""Commands on a checkpoint that a person chose, and the interface of their handlers."""

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
    """Executes commands."""

    @property
    def refusal(self) -> str:
        """Return why commands cannot be executed here, and what to do, in one line; "" if they can."""

    @property
    def leaves_screen(self) -> bool:
        """Whether the browser must be closed first, because the work is done in this process."""

    def check(self, command: Command) -> None:
        """Raise `RunnerError` if the command would be refused, as far as that is known before the browser is closed."""

    def execute(self, command: Command) -> str:
        """Execute the command. Returns a description of the result in one line. Raises `RunnerError`."""


class ReadOnlyHandler:
    """Refuses all commands: for a view that only reads."""

    leaves_screen = False

    def __init__(self, refusal: str) -> None:
        self.refusal = refusal

    def check(self, command: Command) -> None:
        """Refuse the command, which is not for these checkpoints."""
        self.execute(command)

    def execute(self, command: Command) -> str:
        """Refuse the command, which is not for these checkpoints."""
        raise Conflict(f"{command.verb}: {self.refusal}")
