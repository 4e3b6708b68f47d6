"""Explains references in a crew's YAML that do not exist, with their place; CrewAI only gives the name."""

import difflib
import linecache
import os
from collections.abc import Iterable
from pathlib import Path
from traceback import walk_tb
from typing import Any

_KINDS = {"llm": "llm", "tools": "tool", "context": "task", "callbacks": "callback", "step_callback": "callback"}
"""By the key in a YAML file: what method of the class it names."""


def missing(error: BaseException) -> str | None:
    """Explain a `KeyError` of CrewAI's: the file, the entry with the unknown name, and the closest known one. None for
    any other error.
    """
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
