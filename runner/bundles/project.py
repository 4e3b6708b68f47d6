"""Recognizes projects of frameworks, by ``pyproject.toml`` or older layouts, and virtual environments in them."""

import ast
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.bundles import frameworks, syntax
from runner.core.errors import BadCrew

CREW_FILE = "crew.py"
MAIN_FILE = "main.py"
JSON_CREWS = ("crew.jsonc", "crew.json")
"""Crews that are written as data: a module of that name stands for one."""

_UP = 6  # folders above a file in which its project is looked for
_HAS = re.compile(r"\bCrew\(|@CrewBase|\bFlow\b|\.kickoff")
_KICKS = ".kickoff"
_MOST, _LONGEST = 200, 200_000  # files of a folder, characters of a file, that are looked at

_MARKS = ("pyvenv.cfg", "conda-meta")  # what says that a folder is an environment
_THIS = frozenset(map(os.path.realpath, (sys.prefix, sys.base_prefix)))  # this Python's
_BESIDE_MAIN = ("agents.py", "tasks.py", "agents", "tasks", "crews")  # what says that a main.py is that of a crew


@dataclass(frozen=True)
class Project:
    """A folder whose ``pyproject.toml`` says that it is a project of a framework's."""

    root: Path
    name: str
    flow: bool = False
    definition: str = ""
    main: Path | None = None  #: what one of its scripts, or what alone in it, kicks off
    declared: bool = True  #: as a framework's; else it only looks like one

    @property
    def source(self) -> Path:
        """The folder that its packages lie in."""
        return source_of(self.root)

    def holds(self, file: Path) -> bool:
        """Whether the file is the project's: in any other repository, a folder of examples stands alone."""
        if self.source == self.root and not self.declared:
            return False
        return file.is_relative_to(self.source) or file.parent == self.root

    def crew_file(self) -> Path:
        """The file with its crew or its flow. Raises `BadCrew` where there is none, or no saying which."""
        if self.definition:
            return self._defined()
        if self.main is not None:
            return self.main
        name = MAIN_FILE if self.flow else CREW_FILE
        own = self.source / self.name.replace("-", "_").lower() / name
        if own.is_file():
            return own
        found = sorted(path for path in self.source.glob(f"*/{name}") if path.is_file())
        if len(found) == 1:
            return found[0]
        what = f"the {'flow' if self.flow else 'crew'} of the project {self.name}"
        if not found:
            raise BadCrew(f"{what} is looked for in {_short(own, self.root)}: no such file in {self.root}")
        raise BadCrew(f"{what} may be in {', '.join(_short(one, self.root) for one in found)}: name the file")

    def _defined(self) -> Path:
        file = self.root / self.definition
        refuse_yaml(self.definition)
        if file.name not in JSON_CREWS or not file.is_file():
            raise BadCrew(f"{file}: no such crew; a crew in JSON is named {' or '.join(JSON_CREWS)}")
        return file


def project_at(folder: Path) -> Project | None:
    """Return the project whose root is this folder."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return None
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):  # not our file: its errors are not ours to report
        return None
    tools = table_of(data.get("tool"))
    tables = (table_of(tools.get(one.framework)) for one in frameworks.installed if one.framework)
    own = next(filter(None, tables), {})
    name = (
        table_of(data.get("project")).get("name") or table_of(tools.get("poetry")).get("name") or folder.resolve().name
    )
    if not own and not any(source_of(folder).glob(f"*/{CREW_FILE}")):
        main = _kicked_off(folder, table_of(table_of(data.get("project")).get("scripts")))
        return Project(folder, str(name), main=main, declared=False) if main else None
    return Project(folder, str(name), own.get("type") == "flow", str(own.get("definition") or ""), declared=bool(own))


def _kicked_off(folder: Path, scripts: dict[str, Any]) -> Path | None:
    """The file that ``[project.scripts]`` names, as in ``kickoff = "pkg.main:kickoff"``, or the only ``*/main.py``."""
    source = source_of(folder)
    for script in frameworks.scripts():
        module = str(scripts.get(script, "")).partition(":")[0]
        file = source.joinpath(*module.split(".")).with_suffix(".py")
        if module and file.is_file() and _imports_one(text_of(file)):
            return file
    mains = [
        file for file in source.glob(f"*/{MAIN_FILE}") if _imports_one(text := text_of(file)) and _HAS.search(text)
    ]
    return mains[0] if len(mains) == 1 and source != folder else None


def project_around(file: Path) -> Project | None:
    """Return the project that a file is part of."""
    for folder in list(file.parents)[:_UP]:
        found = project_at(folder)
        if found is not None:
            return found if found.holds(file) else None
    return None


def source_of(root: Path) -> Path:
    """Where the packages of a project lie: in its ``src``, if it has one."""
    return root / "src" if (root / "src").is_dir() else root


def has_source_folder(root: Path) -> bool:
    """Whether code in that folder is imported from its ``src``, as when it is installed."""
    return (root / "pyproject.toml").is_file() and (root / "src").is_dir()


def main_of(folder: Path) -> Path | None:
    """The ``main.py`` beside agents and tasks, or that kicks a crew off; else the only file that does, or has one."""
    main = folder / MAIN_FILE
    if main.is_file() and any((folder / name).exists() for name in _BESIDE_MAIN):
        return main
    kicking, having = with_crews(folder)
    if main in kicking or (having and main.is_file() and _KICKS in text_of(main)):
        return main
    return next((found[0] for found in (kicking, having) if len(found) == 1), None)


def has_crew_at_hand(file: Path) -> bool:
    """Whether a crew file has, by its words, a crew, or what makes one without being told anything."""
    try:
        body = syntax.parse(text_of(file)).body
    except (SyntaxError, ValueError):
        return True  # reading it says what is wrong
    return any(_is_at_hand(one) for one in body)


def _is_at_hand(one: ast.stmt) -> bool:
    names = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
    match one:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            given = one.args
            required = len(given.posonlyargs + given.args) - len(given.defaults) + given.kw_defaults.count(None)
            return not required and not names.isdisjoint({"Crew", "Flow"})
        case ast.ImportFrom(module=module, names=imported):
            is_own = (module or "").partition(".")[0] not in frameworks.modules()
            return is_own and any("crew" in alias.name.lower() or "flow" in alias.name.lower() for alias in imported)
        case ast.ClassDef() | ast.If() | ast.With() | ast.Try():
            return True
        case ast.Assign() | ast.AnnAssign():
            return any("crew" in name.lower() or "flow" in name.lower() for name in names)
    return False


def with_crews(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files of a folder that seem to kick a crew off, and those that seem to have one, by their words."""
    kicking, having = [], []
    for file in sorted(folder.glob("*.py"))[:_MOST]:
        text = text_of(file)
        if _imports_one(text) and _HAS.search(text):
            having.append(file)
            kicking += [file] if _KICKS in text else []
    return kicking, having


def text_of(file: Path) -> str:
    """Return the beginning of a file's text; "" if it cannot be read."""
    try:
        return file.read_text("utf-8", errors="replace")[:_LONGEST]
    except OSError:
        return ""


def environment_file(file: Path) -> Path | None:
    """The ``.env`` that goes with a crew file: beside it, or in the root of its project."""
    project = project_around(file)
    for folder in [file.parent, *([project.root] if project else [])]:
        if (folder / ".env").is_file():
            return folder / ".env"
    return None


def is_environment(folder: Path) -> bool:
    """Whether a folder is an environment (venv, virtualenv, uv, conda, this Python's), or its ``lib/python3.11``."""
    if _has_mark(folder) or os.path.realpath(folder) in _THIS:
        return True
    return folder.name.startswith("python") and folder.parent.name.startswith("lib") and _has_mark(folder.parents[1])


def is_installed(place: Path, root: Path) -> bool:
    """Whether a folder below ``root`` is in an environment, or is one."""
    around = (place, *place.parents)
    return any(is_environment(folder) for folder in around[: around.index(root)])


def _has_mark(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _MARKS)


def _imports_one(text: str) -> bool:
    """Whether a line of code imports a framework."""
    return re.search(rf"^\s*(from|import)\s+({'|'.join(sorted(frameworks.names()))})\b", text, re.MULTILINE) is not None


def table_of(value: Any) -> dict[str, Any]:
    """Return a table of a TOML file; an empty one if something else stands there."""
    return value if isinstance(value, dict) else {}


def _short(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def refuse_yaml(file: str) -> None:
    """Raise `BadCrew` for a flow that is data. Crews that are, are JSON."""
    if file.endswith((".yaml", ".yml")):
        raise BadCrew(f"{file}: a flow that is written as YAML does not run on the fleet; write it as a class")
