"""Creates the crew that a crew file defines: an object, or a class with ``@CrewBase``."""

from pathlib import Path
from typing import Any

from crewai import Crew

from runner.adapters.crewai import configs
from runner.bundles import loader
from runner.bundles.reading import KickedOff, reading
from runner.core.errors import BadCrew, Stop
from runner.core.plain_text import of_class

_made: dict[int, tuple[Any, Any, Crew]] = {}
"""By the id of a class: it, an instance of it, and its crew. CrewAI knows what methods of an instance gave by the
instance's id, so none may go while the process is there."""


def is_crew(thing: object) -> bool:
    """Whether this is a crew, or a class with ``@CrewBase``."""
    return isinstance(thing, Crew) or is_class(thing)


def is_class(thing: object) -> bool:
    """Whether this is a class with ``@CrewBase`` and a method ``crew``."""
    return isinstance(thing, type) and bool(getattr(thing, "is_crew_class", False)) and hasattr(thing, "crew")


def made(thing: Any) -> Crew:
    """Return the crew, and create it first where ``thing`` is a class. Raises `BadCrew` if that fails."""
    if isinstance(thing, Crew):
        return thing
    if id(thing) not in _made:
        instance, crew = _make(thing)
        _made[id(thing)] = (thing, instance, crew)
    return _made[id(thing)][2]


def _make(owner: Any) -> tuple[Any, Crew]:
    name = owner.__name__
    try:
        with reading():
            instance = owner()
            try:
                crew = instance.crew()
            except KickedOff as kicked_off:
                crew = kicked_off.crew
    except (KeyboardInterrupt, Stop):
        raise
    except BaseException as error:
        if found := configs.missing(error):
            raise BadCrew(f"{name}: {found}") from error
        raise loader.explain(error, Path(), f"{name}: ") from error
    if not isinstance(crew, Crew):
        raise BadCrew(f"{name}.crew() returned {of_class(crew)}, not a crew")
    return instance, crew
