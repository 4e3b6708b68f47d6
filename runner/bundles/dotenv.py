"""Loads the ``.env`` of a project into this process, and so into the worker that it starts. It is never stored."""

import os
import re
from collections.abc import MutableMapping
from pathlib import Path

from runner.core.errors import BadCrew

_LINE = re.compile(
    r"""\s* (?:export\s+)? (?P<name>[A-Za-z_][A-Za-z0-9_.]*) \s* = \s*
        (?: '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | (?P<plain>.*?) ) \s* (?:\s\#.*)?""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_OURS = "RUNNER_"  # what the command itself goes by was decided before a project's file is read


def take(file: Path, environment: MutableMapping[str, str] | None = None) -> list[str]:
    """Set the variables of the file that are not set yet. Returns their names. Raises `BadCrew`."""
    environment = os.environ if environment is None else environment
    taken = {name: value for name, value in read(file).items() if name not in environment and "\0" not in value}
    environment.update(taken)
    return list(taken)


def read(file: Path) -> dict[str, str]:
    """The variables of a file, by name. Raises `BadCrew`."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise BadCrew(f"{file}: cannot be read: {error}") from error
    found = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match and not match["name"].startswith(_OURS):
            found[match["name"]] = _value(match)
    return found


def _value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return re.sub(r"\\(.)", lambda one: _ESCAPED.get(one[1], one[1]), match["double"])
    plain: str = match["single"] if match["single"] is not None else match["plain"]
    return "" if plain.startswith("#") else plain
