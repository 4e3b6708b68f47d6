"""Where pip is told to get packages from on this machine, as settings of uv, which does not read pip's.

They go to uv in its environment alone: a URL may have a password.
"""

import configparser
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SETTINGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("index-url", "UV_DEFAULT_INDEX", "", ("UV_INDEX_URL", "index", "index-url")),
    ("extra-index-url", "UV_INDEX", " ", ("UV_EXTRA_INDEX_URL", "index", "extra-index-url")),
    ("find-links", "UV_FIND_LINKS", ",", ("find-links",)),
    ("constraint", "UV_CONSTRAINT", " ", ("constraint-dependencies",)),
    ("trusted-host", "UV_INSECURE_HOST", " ", ("allow-insecure-host",)),
    ("cert", "SSL_CERT_FILE", "", ()),
    ("client-cert", "SSL_CLIENT_CERT", "", ()),
    ("proxy", "ALL_PROXY", "", ("HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy")),
)
"""Each setting of pip's, uv's variable, what is between several values of it, and what takes its place: other
variables, and settings in uv's files."""

_NO_INDEX = "no-index"
_STRATEGY = "UV_INDEX_STRATEGY"
_SECTIONS = ("global", "install")
_YES = ("y", "yes", "t", "true", "on", "1")  #: what pip takes for yes
_INDEXES = {_NO_INDEX, *(one for _, variable, _, instead in _SETTINGS[:2] for one in (variable, *instead))}


def for_uv(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables for uv that say what pip is configured with, by its files and ``PIP_`` variables.

    What uv is configured with itself stays: by ``environ``, by its files for the user and the machine, or by those in
    ``folder``.
    """
    pip, own = _of_pip(environ), {*environ, *_of_uv(folder, environ)}
    found = dict[str, str]()
    for name, variable, between, instead in _SETTINGS:
        value = pip.get(name, "")
        if value.strip() and own.isdisjoint((variable, *instead)):
            found[variable] = between.join(value.split()) if between else value.strip()
    if "UV_INDEX" in found and own.isdisjoint((_STRATEGY, "index-strategy")):
        found[_STRATEGY] = "unsafe-best-match"  # as pip has it: the best version that any of the indexes has
    return found


def options(folder: Path, environ: Mapping[str, str]) -> list[str]:
    """Return options of ``uv pip install`` that say what pip is configured with and no variable of uv's could say: to
    ask no index at all. They are left out where uv is configured with an index itself, as in `for_uv`.
    """
    own = {*environ, *_of_uv(folder, environ)}
    asks_none = _of_pip(environ).get(_NO_INDEX, "").strip().lower() in _YES and own.isdisjoint(_INDEXES)
    return [f"--{_NO_INDEX}"] if asks_none else []


def _of_pip(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of ``pip install``, the last that is given of each."""
    found = dict[str, str]()
    files = [_read(file) for file in _files(environ)]
    for section in _SECTIONS:
        for one in files:
            found |= {name.replace("_", "-"): text for name, text in (one.items(section) if section in one else ())}
    named = {name.removeprefix("PIP_").lower().replace("_", "-"): value for name, value in environ.items()
             if name.startswith("PIP_") and value}  # fmt: skip
    return {**found, **named}


def _files(environ: Mapping[str, str]) -> list[Path]:
    """Return pip's files, the one that is decisive last."""
    named = environ.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    shared = [Path(one) / "pip" for one in (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)]
    folders = [*reversed(shared), Path("/etc")]
    if sys.platform == "darwin":
        folders = [Path("/Library/Application Support/pip")]
    if (home := environ.get("HOME")) and not (named and Path(named).exists()):  # else pip does not read the user's
        folders += [Path(home) / ".pip", Path(environ.get("XDG_CONFIG_HOME") or Path(home) / ".config") / "pip"]
        if sys.platform == "darwin":
            folders.append(Path(home) / "Library/Application Support/pip")
    return [*(folder / "pip.conf" for folder in (*folders, Path(sys.prefix))), *([Path(named)] if named else [])]


def _read(file: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, "utf-8")
    except (OSError, UnicodeDecodeError, configparser.Error):  # pip would say what is wrong with it, and uv works
        return configparser.RawConfigParser()
    return parser


def _of_uv(folder: Path, environ: Mapping[str, str]) -> set[str]:
    """Return the names of the settings in uv's own files."""
    home = environ.get("XDG_CONFIG_HOME") or (environ.get("HOME", "") and f"{environ['HOME']}/.config")
    files = [Path("/etc/uv/uv.toml"), *([Path(home) / "uv/uv.toml"] if home else [])]
    files += [folder / "uv.toml", *([Path(environ["UV_CONFIG_FILE"])] if "UV_CONFIG_FILE" in environ else [])]
    tables = [_table(file, lambda data: data) for file in files]
    tables.append(_table(folder / "pyproject.toml", lambda data: data["tool"]["uv"]))
    tables += [table["pip"] for table in tables if isinstance(table.get("pip"), dict)]
    return {name for table in tables for name in table}


def _table(file: Path, part: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    try:
        found = part(tomllib.loads(file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or uv says what is wrong
        return {}
    return found if isinstance(found, dict) else {}
