"""The environment that a crew file requires: packages and Python, as declared by files next to it.

In this order: script metadata in the file itself (PEP 723); then in its folder, or one above it within the bundle,
``uv.lock``, ``requirements.txt`` or ``pyproject.toml``; and the first ``.python-version``. Nothing is built here.
"""

import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from runner.bundles.project import table_of
from runner.bundles.selection import refuse_login
from runner.core.errors import BadCrew

LOCK, LISTED, PROJECT, VERSION = "uv.lock", "requirements.txt", "pyproject.toml", ".python-version"

_SCRIPT = re.compile(r"(?m)^# /// script\s*$\n(?P<lines>(?:^#(?: .*)?$\n?)+?)^# ///\s*$")
_INCLUDED = re.compile(r"^(?:-r|-c|--requirement|--constraint)[ =]\s*(\S+)")
_LOCAL = re.compile(r"^(?:-e\b|--editable\b|[./]|file:)|@\s*(?:file:|[./])|^(?:--find-links|-f)[ =]\s*[./]")
_VERSION = re.compile(r"(?:[a-z]+[-@]?)?\d|[<>=~!]")


_OWN = ".".join(map(str, sys.version_info[:3]))


@dataclass(frozen=True)
class Environment:
    """A required environment, and the files that define it.

    ``digest`` covers all that determines the build. ``file``, relative to ``folder``, lists the packages ("" for none);
    ``lines`` are requirements that uv does not read from files. ``python`` is a version or a range; "" for any.
    """

    digest: str
    folder: Path
    file: str = ""
    lines: tuple[str, ...] = ()
    python: str = ""

    @property
    def named(self) -> str:
        """Return its name for messages."""
        return self.file or VERSION


def asked_for(file: Path, root: Path, bundle: str = "") -> Environment | None:
    """Return the environment that a crew file below ``root`` requires; None if it requires none.

    ``bundle`` is the hash of its files, for packages among them. Raises `BadCrew` for a password or a bad file.
    """
    folders = [one for one in (file.parent, *file.parent.parents) if one.is_relative_to(root)]
    pinned = next((text for one in folders if (text := _version(one / VERSION))), "")
    found = _script(file) or next((one for folder in folders if (one := _listed(folder))), None)
    if found is None:
        return Environment(_digest(pinned), file.parent, python=pinned) if pinned else None
    folder, name, lines, python, texts = found
    python = pinned or python
    if not lines and name != LISTED and not python:
        return None
    for text in texts:
        refuse_login(name, text)
    local = any(_LOCAL.search(line) for line in lines) or any("path =" in text for text in texts)
    return Environment(_digest(python, *texts, *[bundle] * local), folder, name, tuple(lines), python)


def suits(wanted: Environment) -> bool:
    """Whether this Python is of a required version."""
    return not wanted.python or _suits(wanted.python, _OWN)


def why_not(wanted: Environment) -> str:
    """Return why this interpreter does not satisfy the environment; "" if it does.

    Extras count, except in a ``pyproject.toml``: templates name some that most projects do not import.
    """
    if not suits(wanted):
        return f"it needs Python {wanted.python}, and this is {_OWN}"
    if any(_LOCAL.search(line) or "://" in line for line in wanted.lines):
        return "it needs packages that come from no index"
    for line in wanted.lines:
        if why := _missing(line, extras=wanted.file != PROJECT):
            return why
    return next(_changed(wanted.folder / LOCK), "") if wanted.file == LOCK else ""


_Found = tuple[Path, str, list[str], str, list[str]]
"""The folder, the file, what it asks for, the Python, and the texts that decide it."""


def _script(file: Path) -> _Found | None:
    try:
        block = _SCRIPT.search(file.read_text("utf-8")) if file.suffix == ".py" else None
    except (OSError, UnicodeDecodeError):  # reading it says what is wrong
        return None
    if block is None:
        return None
    text = "".join(line[2:] if line.startswith("# ") else line[1:] for line in block["lines"].splitlines(keepends=True))
    data = _toml(text, file.name)
    return file.parent, file.name, _texts(data.get("dependencies")), str(data.get("requires-python") or ""), [text]


def _listed(folder: Path) -> _Found | None:
    """Return the requirements in the files of one folder."""
    project = _read(folder / PROJECT)
    data = _toml(project, PROJECT) if project is not None else {}
    table = table_of(data.get("project"))
    asked, python = _texts(table.get("dependencies")), str(table.get("requires-python") or "")
    decides = json.dumps([asked, python, table_of(data.get("tool")).get("uv")], default=str)
    if project is not None and (lock := _read(folder / LOCK)) is not None:
        return folder, LOCK, asked, python, [decides, lock]
    if (folder / LISTED).is_file():
        texts = dict[str, str]()
        _gather(folder / LISTED, folder, texts)
        lines = [line for text in texts.values() for line in _lines(text)]
        return (folder, LISTED, lines, python, [*texts, *texts.values(), decides]) if lines else None
    if asked:
        return folder, PROJECT, asked, python, [decides]
    return None


def _gather(file: Path, folder: Path, texts: dict[str, str]) -> None:
    """Read a requirements file, and the files that it includes."""
    name = os.path.relpath(file, folder)
    if name in texts or (text := _read(file)) is None:
        return
    texts[name] = text
    for line in _lines(text):
        if found := _INCLUDED.match(line):
            _gather(file.parent / found[1], folder, texts)


def _lines(text: str) -> list[str]:
    joined = text.replace("\\\n", " ").splitlines()
    return [line for one in joined if (line := re.sub(r"(^|\s)#.*", "", one).strip())]


def _missing(line: str, *, extras: bool) -> str:
    """Return why a required package of this line is missing; "" if it is not, or if the line requires nothing."""
    if line.startswith("-"):
        return "" if _INCLUDED.match(line) or line.startswith(("-i", "--")) else f"it has the line {line!r}"
    try:
        wanted = Requirement(re.sub(r"\s--hash.*", "", line))
    except InvalidRequirement:
        return f"it has the line {line!r}"
    return _absent(wanted, extras=extras)


def _absent(wanted: Requirement, *, extras: bool) -> str:
    if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
        return ""
    try:
        found = metadata.distribution(wanted.name)
    except metadata.PackageNotFoundError:
        return f"it needs {wanted.name}, which is not installed"
    if not wanted.specifier.contains(found.version, prereleases=True):
        return f"it needs {wanted.name}{wanted.specifier}, and {found.version} is installed"
    for needed in map(Requirement, (found.requires or ()) if extras else ()):
        of_extra = needed.marker is not None and not needed.marker.evaluate({"extra": ""})
        if of_extra and any(needed.marker.evaluate({"extra": one}) for one in wanted.extras):  # type: ignore[union-attr]  # `of_extra` says that there is one
            needed.marker = None
            if why := _absent(needed, extras=False):
                return why
    return ""


def _changed(lock: Path) -> Iterator[str]:
    """Yield packages that are installed in another version than in a lock file."""
    for package in _toml(lock.read_text("utf-8"), LOCK).get("package", []):
        name, version = package.get("name", ""), package.get("version")
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if version and found != version and "registry" in table_of(package.get("source")):
            yield f"{name} {version} is locked, and {found} is installed"


def _suits(asked: str, version: str) -> bool:
    """Whether a version satisfies ``.python-version`` or ``requires-python``."""
    if plain := re.fullmatch(r"(?:cpython[-@]?|python)?(\d+(?:\.\d+)*)", asked):
        return f"{version}.".startswith(f"{plain[1]}.")
    try:
        return SpecifierSet(asked).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _version(file: Path) -> str:
    """Return the first version in a file, which may also name pyenv environments that mean nothing elsewhere."""
    return next((line for line in _lines(_read(file) or "") if _VERSION.match(line)), "")


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadCrew(f"{file.name}: cannot be read: {error}") from None


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        if name == PROJECT:  # of some other tool's, perhaps: its errors are not ours to report
            return {}
        raise BadCrew(f"{name}: it is not TOML: {error}") from None


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _digest(*texts: str) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
