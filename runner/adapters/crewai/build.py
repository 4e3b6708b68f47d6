"""Creates the crew that a crew file defines: an object, or a class with ``@CrewBase``."""

import difflib
import linecache
import os
from collections.abc import Iterable
from pathlib import Path
from traceback import walk_tb
from typing import Any

from crewai import Crew

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
        if found := _missing_reference(error):
            raise BadCrew(f"{name}: {found}") from error
        raise loader.explain(error, Path(), f"{name}: ") from error
    if not isinstance(crew, Crew):
        raise BadCrew(f"{name}.crew() returned {of_class(crew)}, not a crew")
    return instance, crew


_KINDS = {"llm": "llm", "tools": "tool", "context": "task", "callbacks": "callback", "step_callback": "callback"}
"""By the key in a YAML file: what method of the class it names."""


def _missing_reference(error: BaseException) -> str | None:
    """Explain a missing reference in a crew's YAML: the file, the entry, the closest name. None for other errors."""
    if not isinstance(error, KeyError) or not error.args or not isinstance(error.args[0], str):
        return None
    name = error.args[0]
    frame, line = list(walk_tb(error.__traceback__))[-1]  # deeper ones would be of another look-up
    code, known = frame.f_code, frame.f_locals
    owner = known.get("self")
    if code.co_name == "_map_task_variables":
        return _unknown(owner, "tasks", known["task_name"], known["task_info"], name)
    if code.co_name == "_map_agent_variables":
        return _unknown(owner, "agents", known["agent_name"], known["agent_info"], name)
    for kind in ("agents", "tasks"):
        config = getattr(owner, f"{kind}_config", None)
        if f"{kind}_config" in linecache.getline(code.co_filename, line) and isinstance(config, dict):
            return None if name in config else _not_in_file(owner, kind, config, name, code.co_name)
    return None


def _unknown(owner: Any, kind: str, entry: str, info: dict[str, Any], name: str) -> str:
    key = next((key for key, value in info.items() if value == name or (isinstance(value, list) and name in value)), "")
    what = _KINDS.get(key, key)
    there = [one for one, method in getattr(owner, "_all_methods", {}).items() if hasattr(method, f"is_{what}")]
    place = f"{_file(owner, kind)}: {key} of {kind[:-1]} {entry!r} names {name!r}"
    return f"{place}, but the class has no method of that name with @{what}{_near(name, there)}"


def _not_in_file(owner: Any, kind: str, config: dict[str, Any], name: str, method: str) -> str:
    file = _file(owner, kind)
    if isinstance(file, Path) and not file.is_file():
        return f"no such file: {file}, where {method}() looks for {name!r}"
    return f"{file} has no {kind[:-1]} {name!r}, which {method}() asks for{_near(name, config)}"


def _file(owner: Any, kind: str) -> Path | str:
    try:
        path: Path = Path(owner.base_directory) / getattr(owner, f"original_{kind}_config_path")
    except (AttributeError, TypeError):
        return f"{kind}_config"
    return Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path


def _near(name: str, there: Iterable[str]) -> str:
    known = sorted(there)
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there is {', '.join(known[:6])}" if known else ""
