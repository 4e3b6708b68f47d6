"""Finds the file to run in a folder with agents, from its configuration. No code is executed."""

import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

from runner.bundles import frameworks
from runner.bundles.project import source_of, text_of
from runner.core.errors import BadCrew

_NAMES = ("main.py", "agent.py", "app.py")
"""The files that are meant where a folder has them, the likeliest first."""
_MOST, _UP = 50, 6  # files of a folder, folders above a file that are looked at
_IMPORTED = re.compile(r"^\s*(?:from\s+\.*([\w.]*)\s+import\s+(\w*)|import\s+([\w.]+))", re.MULTILINE)


def file_of(folder: Path) -> tuple[Path | None, str]:
    """Return the file that a folder with agents stands for, and the object in it if a framework's own file names one.

    In this order: what such a file names; what ``[project.scripts]`` calls, if that is one file; ``main.py``,
    ``agent.py`` or ``app.py``; the only file that uses agents, in the folder, its ``src`` or its only package; what
    ``[project.scripts]`` calls, if no file does. Raises `BadCrew` if several are named.
    """
    named = {name: place for one in frameworks.installed for name, place in one.named(folder).items()}
    if len(named) > 1:
        places = [f"{(folder / one).as_posix()}" for one in named.values()]
        raise BadCrew(f"{folder} has {len(named)} graphs: {', '.join(named)}; name one, as in {places[0]}")
    for place in named.values():
        path, _, attr = place.rpartition(":")
        if (there := folder / path).is_file():
            return there, attr
    called = set(_scripts(folder).values())
    scripts = {file: place for place in called if (file := _module_file(folder, place)) is not None}
    using = [file for file in sorted(scripts) if _uses_agents(file)]
    if len(using) == 1:
        return using[0], ""
    for inside in (folder, source_of(folder), *_packages(source_of(folder))):
        using = with_agents(inside)
        found = next((file for name in _NAMES for file in using if file.name == name), None)
        if found is not None or len(using) == 1:
            return found or using[0], ""
        if using:
            return None, ""
    if len(called) == len(scripts) == 1:
        [(file, place)] = scripts.items()
        return file, f"{place.partition(':')[2]}()"
    return None, ""


def with_agents(folder: Path) -> list[Path]:
    """The files of a folder that use agents, by what they import."""
    return [file for file in sorted(folder.glob("*.py"))[:_MOST] if _uses_agents(file)]


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder that may have files of its project, and those in its ``src``."""
    found = {one.parent for inside in (folder, source_of(folder)) for one in list(inside.glob("*/*.py"))[:_MOST]}
    return [one for one in sorted(found) if not one.name.startswith(".")]


def scripts_of(module: ModuleType) -> list[str]:
    """The functions of a module that ``[project.scripts]`` of its project calls."""
    file = Path(module.__file__ or "")
    root = next((one for one in list(file.parents)[:_UP] if (one / "pyproject.toml").is_file()), None)
    if root is None:
        return []
    return [place.partition(":")[2] for place in _scripts(root).values() if _module_file(root, place) == file]


def _scripts(folder: Path) -> dict[str, str]:
    try:
        found: Any = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
        return {str(name): str(place) for name, place in found.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # none, or not our file to complain of
        return {}


def _module_file(root: Path, place: str) -> Path | None:
    """Return the file of the module in ``package.module:function``."""
    stem = source_of(root).joinpath(*place.partition(":")[0].split("."))
    return next((file for file in (stem.with_suffix(".py"), stem / "__init__.py") if file.is_file()), None)


def _packages(folder: Path) -> list[Path]:
    """Return the only package in a folder."""
    found = [file.parent for file in sorted(folder.glob("*/__init__.py"))]
    return found if len(found) == 1 else []


def _is_beside(file: Path, module: str) -> bool:
    """Whether it is the author's own module that a file imports by this name: agents.py, workflows.py."""
    return bool(module) and ((file.parent / f"{module}.py").is_file() or (file.parent / module).is_dir())


def _uses_agents(file: Path, deep: int = 2) -> bool:
    """Whether a file imports a framework of agents, or a module beside it that does."""
    makers = frameworks.agents()
    for whole, name, plain in _IMPORTED.findall(text_of(file)):
        module = whole or plain
        is_made = any(f"{one}.".startswith(f"{maker}.") for maker in makers for one in (module, f"{module}.{name}"))
        if is_made and not _is_beside(file, module.partition(".")[0]):
            return True
        last = (module or name).rpartition(".")[2]
        beside = file.parent / f"{last}.py"
        if deep and last and beside != file and beside.is_file() and _uses_agents(beside, deep - 1):
            return True
    return False
