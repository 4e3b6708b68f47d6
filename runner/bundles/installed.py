"""Environments in a project's folder: what is installed there is no code of the project's."""

import os
import sys
from pathlib import Path

_MARKS = ("pyvenv.cfg", "conda-meta")
_THIS = frozenset(map(os.path.realpath, (sys.prefix, sys.base_prefix)))


def is_environment(folder: Path) -> bool:
    """Whether a folder is an environment, whatever its name: one of venv, virtualenv, uv or conda, or this Python's.

    ``lib/python3.11`` of one is, too: the project's folder may be an environment itself, by ``python -m venv .``.
    """
    if _has_mark(folder) or os.path.realpath(folder) in _THIS:
        return True
    return folder.name.startswith("python") and folder.parent.name.startswith("lib") and _has_mark(folder.parents[1])


def is_installed(place: Path, root: Path) -> bool:
    """Whether a folder below ``root`` is in an environment, or is one."""
    around = (place, *place.parents)
    return any(is_environment(folder) for folder in around[: around.index(root)])


def _has_mark(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _MARKS)
