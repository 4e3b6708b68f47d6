"""A function, method or file that does more than one kickoff: it runs as one task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runner.core.errors import TaskError
from runner.core.waiting import result_of

CALL = "()"


@dataclass(frozen=True)
class Program:
    """What is done when ``name`` is called in its file; for ``__main__``, all that the file does as a script.

    ``do`` does it; None if the file is only read. ``adapter`` is the name of the adapter, "" if not known yet.
    ``needs`` are the function's required arguments, ``takes`` all of them (None if it takes any), ``kinds`` their JSON
    types.
    """

    name: str
    do: Callable[[], object] | None = field(default=None, compare=False)
    adapter: str = field(default="", compare=False)
    needs: tuple[str, ...] = field(default=(), compare=False)
    takes: tuple[str, ...] | None = field(default=None, compare=False)
    kinds: Mapping[str, str] = field(default_factory=dict, compare=False)

    def run(self) -> object:
        """Do it, and return the awaited result; None for an exit. Raises `TaskError` for an exit with an error."""
        assert self.do is not None
        try:
            return result_of(self.do())
        except SystemExit as end:
            if end.code not in (None, 0):
                raise TaskError(f"{self.name} ended with exit code {end.code}") from end
            return None

    @property
    def attr(self) -> str:
        """What it is found by in its module, which is not called to be read."""
        return f"{self.name}{CALL}"
