"""``@CrewBase``: a class that makes a crew, of the YAML beside it and of what its methods make."""

import functools
from pathlib import Path
from typing import Any, TypeVar

from runner.core.errors import BadCrew
from runner.hooks import registry
from runner.project.configs import Entries, base_of
from runner.project.decorators import marked

C = TypeVar("C", bound=type)

_FILES = {"agents_config": "config/agents.yaml", "tasks_config": "config/tasks.yaml"}
_KINDS = {"agents_config": "agent", "tasks_config": "task"}


def CrewBase(owner: C) -> C:
    """A class decorator: before its ``__init__``, each object has the entries of the YAML files of agents and tasks.

    ``agents_config`` and ``tasks_config`` are the entries of the files that attributes of these names say, seen from
    the class's own file; of ``config/agents.yaml`` and ``config/tasks.yaml`` where the class says nothing; nothing
    where it says None. Hooks that are methods of the class are called for its own crews alone.
    """
    made: Any = owner
    made.is_crew_class = True
    made._crew_name = owner.__name__
    initialise = made.__init__

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        begins = "_begun" not in self.__dict__  # a class of crews may be made of another one
        self.__dict__["_begun"] = True
        if begins:
            self.base_directory = base_of(self)
            _load(self)
        initialise(self, *args, **kwargs)
        if begins:
            _load(self)
            for name in marked(type(self), "hook"):
                registry.register_method(self, getattr(self, name))

    made.__init__ = __init__
    if not hasattr(made, "get_mcp_tools"):
        made.get_mcp_tools = _get_mcp_tools
    return owner


def _load(self: Any) -> None:
    """The entries of the files that the attributes name; ``original_NAME_path`` says which file that was."""
    for name, default in _FILES.items():
        said = getattr(self, name, default)
        if isinstance(said, str | Path):
            setattr(self, f"original_{name}_path", str(said))
            setattr(self, name, Entries(self, _KINDS[name], self.base_directory / said))
        elif said is None:
            setattr(self, name, Entries(self, _KINDS[name], None))


def _get_mcp_tools(self: Any, *names: str) -> list[Any]:  # noqa: ARG001 - their names are the callers'
    """Raises `BadCrew`: an agent is given its servers, which are connected to where its task is done."""
    raise BadCrew(
        f"{type(self).__name__}: get_mcp_tools() connects when the file is read: use Agent(mcps=[...]), "
        "which connects when the task runs"
    )
