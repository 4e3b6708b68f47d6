"""Parses the TARGET argument, ``path``, ``package.module`` or either with ``:object``. Imports nothing."""

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path

from runner.bundles.folders import file_of, subfolders, with_agents
from runner.bundles.project import (
    CREW_FILE,
    JSON_CREWS,
    has_crew_at_hand,
    has_source_folder,
    main_of,
    project_around,
    project_at,
    refuse_yaml,
    source_of,
    with_crews,
)
from runner.core.errors import BadCrew

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_CALLED = re.compile(rf"{_DOTTED.pattern}(\(\))?")


@dataclass(frozen=True)
class Target:
    """A crew file, found: where it is, its name, and what is packed with it."""

    file: Path
    attr: str | None  # the crew in it, when one was named
    root: Path  # the folder that goes first on the import path
    module: str  # the file's dotted name, seen from root
    include: Path  # what is packed: the top-most package, or the file's folder


def parse_target(text: str) -> Target:
    """Find the crew file that ``text`` names; BadCrew says in one line why there is none."""
    try:
        place, attr = _split(text)
        return _from_path(place, attr) or _from_module(place, attr)
    except (OSError, ValueError) as error:  # a name too long for the file system, a NUL in it
        raise BadCrew(f"{text!r}: no such file ({error})") from error


def root_of(code: object) -> Path:
    """The root of the bundle that would hold the module of a function or a class; the working directory without one."""
    module = sys.modules.get(getattr(inspect.unwrap(code), "__module__", "") if callable(code) else "")
    file = getattr(module, "__file__", None)
    return _at_file(Path(file), None).root if file else Path.cwd()


def _split(text: str) -> tuple[str, str | None]:
    if Path(text).exists() and text:
        return text, None  # a file name may hold a colon of its own
    place, colon, attr = text.rpartition(":")
    if not colon:
        place, attr = text, ""
    elif not _CALLED.fullmatch(attr):
        raise BadCrew(
            f"{text}: expected a name after the colon, as in crew.py:my_crew, agent.py:agent or agent.py:main()"
        )
    if not place:
        raise BadCrew("no crew file given: name one, as in crew.py, crew.py:my_crew or package.module:my_crew")
    return place, attr or None


def _from_path(place: str, attr: str | None) -> Target | None:
    """The target at a path; None if ``place`` may still be the name of a module."""
    path = Path(place)
    may_be_module = _DOTTED.fullmatch(place) is not None and not place.endswith(".py")
    if path.is_dir():
        crew_file, of_it = _crew_file(path), ""
        if crew_file is None and not any(with_crews(path)):  # a crew's tools may be made with a framework of agents
            crew_file, of_it = file_of(path)
        if crew_file is not None:
            return _at_file(crew_file, attr or of_it or None)
        if may_be_module and (path / "__init__.py").is_file():
            return None
        raise BadCrew(f"{place} is a directory; {_files_of(path)}")
    if path.exists():
        if (path.suffix != ".py" and path.name not in JSON_CREWS) or not path.is_file():
            refuse_yaml(place)
            raise BadCrew(f"{place} is not a Python file: a crew file ends in .py")
        return _at_file(path, attr)
    if may_be_module:
        return None
    raise BadCrew(f"no such file: {place}{_instead(path)}")


def _instead(path: Path) -> str:
    """The file of that name where the project here has its crew."""
    project = project_at(Path())
    try:
        near = project.crew_file().with_name(path.name) if project else path
    except BadCrew:
        return ""
    return f"; did you mean {near.as_posix()}?" if near.is_file() else ""


def _crew_file(folder: Path) -> Path | None:
    """What a folder given as a target stands for."""
    if (project := project_at(folder)) is not None:
        return project.crew_file()
    plain = next((file for name in (CREW_FILE, *JSON_CREWS) if (file := folder / name).is_file()), None)
    if plain is not None and plain.name == CREW_FILE and not has_crew_at_hand(plain):
        return main_of(folder) or plain
    return plain or main_of(folder)


def _files_of(folder: Path) -> str:
    """A few files a person may have meant: crew files one or two levels down first, and those that use agents."""
    kicking, having = with_crews(folder)
    crews = kicking or having or sorted(folder.glob(f"*/{CREW_FILE}")) + sorted(folder.glob(f"*/*/{CREW_FILE}"))
    agents = (
        [] if crews else with_agents(folder) or [one for inside in subfolders(folder) for one in with_agents(inside)]
    )
    found = crews or agents or sorted(folder.glob("*.py"))
    what = "the agent's file" if agents else "the crew file"
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return f"name {what} in it: {', '.join(map(str, found[:3]))}{more}" if found else "it has no Python file"


def _at_file(path: Path, attr: str | None) -> Target:
    file = path.resolve()  # as Python does for a script: what lies beside the real file counts
    folder, parts = file.parent, [] if file.name == "__init__.py" else [file.stem]
    if "." in file.stem:
        raise BadCrew(f"{path}: Python cannot import a file with a dot in its name; rename it")
    project = project_around(file)
    if project is not None and (package := file.parent) != project.root:
        # All of the project goes along: its knowledge lies beside its packages.
        within = [*package.relative_to(project.source).parts, *parts]
        if all(part.isidentifier() for part in within):
            return Target(file=file, attr=attr, root=project.root, module=".".join(within), include=project.root)
    include = folder
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        include, folder = folder, folder.parent
    return Target(file=file, attr=attr, root=folder, module=".".join(parts) or file.stem, include=include)


def _from_module(name: str, attr: str | None) -> Target:
    top, *rest = name.split(".")
    for spec in _specs(top):
        if not rest and spec.origin and spec.origin.endswith(".py"):
            return _at_file(Path(spec.origin), attr)
        for location in map(Path, spec.submodule_search_locations or ()):
            stem = location.joinpath(*rest)
            for file in (stem.with_name(stem.name + ".py"), stem / "__init__.py"):
                if rest and file.is_file():
                    return _in_package(file.resolve(), name, location.resolve(), attr)
    where = f"in {Path.cwd()} or on the Python path"
    raise BadCrew(f"{name}: no such file, and no module of that name {where}")


def _specs(top: str) -> Iterator[ModuleSpec]:
    """Where the first part of a dotted name may be: here, then wherever Python finds it. Imports nothing."""
    for folder in [Path.cwd(), *([source_of(Path.cwd())] if has_source_folder(Path.cwd()) else [])]:
        here = FileFinder(os.fspath(folder), (SourceFileLoader, [".py"])).find_spec(top)
        if here is not None:
            yield here
    try:
        elsewhere = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return
    if elsewhere is not None:
        yield elsewhere


def _in_package(file: Path, name: str, package: Path, attr: str | None) -> Target:
    if package.name != name.partition(".")[0] or not file.is_relative_to(package):
        return _at_file(file, attr)  # an installation that gives a folder another name: the file's own place decides
    # The person gave the dotted name, so it holds even where folders have no __init__.py.
    return Target(file=file, attr=attr, root=package.parent, module=name, include=package)
