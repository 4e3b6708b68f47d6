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

_YES = ("y", "yes", "t", "true", "on", "1")  #: what pip takes for yes
_INDEX, _MORE = ("UV_INDEX_URL", "index", "index-url"), ("UV_EXTRA_INDEX_URL", "index", "extra-index-url")
_BUILT = ("UV_NO_BUILD", "UV_NO_BUILD_PACKAGE", "no-build", "no-build-package", "only-binary")
_BINARY = ("UV_NO_BINARY", "UV_NO_BINARY_PACKAGE", "no-binary", "no-binary-package")


def _listed(between: str) -> Callable[[str], str]:
    return lambda value: between.join(value.split())


def _if_yes(said: str) -> Callable[[str], str]:
    return lambda value: said if value.lower() in _YES else ""


def _if_subprocess(value: str) -> str:
    return value if value == "subprocess" else ""


_SETTINGS: tuple[tuple[str, str, Callable[[str], str], tuple[str, ...]], ...] = (
    ("index-url", "UV_DEFAULT_INDEX", str, _INDEX),
    ("extra-index-url", "UV_INDEX", _listed(" "), _MORE),
    ("find-links", "UV_FIND_LINKS", _listed(","), ("find-links",)),
    ("constraint", "UV_CONSTRAINT", _listed(" "), ("constraint-dependencies",)),
    ("build-constraint", "UV_BUILD_CONSTRAINT", _listed(" "), ("build-constraint-dependencies",)),
    ("pre", "UV_PRERELEASE", _if_yes("allow"), ("prerelease",)),
    ("timeout", "UV_HTTP_TIMEOUT", lambda value: value.partition(".")[0], ("UV_REQUEST_TIMEOUT", "HTTP_TIMEOUT")),
    ("retries", "UV_HTTP_RETRIES", str, ()),
    ("keyring-provider", "UV_KEYRING_PROVIDER", _if_subprocess, ("keyring-provider",)),
    ("trusted-host", "UV_INSECURE_HOST", _listed(" "), ("allow-insecure-host",)),
    ("cert", "SSL_CERT_FILE", str, ()),
    ("client-cert", "SSL_CLIENT_CERT", str, ()),
    ("proxy", "ALL_PROXY", str, ("HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy")),
)
"""Each setting of pip's, uv's variable, how its value is written there, and what takes its place: other variables, and
settings in uv's files. Those of which uv has no variable are options: `_OPTIONS`."""

_NO_INDEX = "no-index"
_OPTIONS = {"only-binary": _BUILT, "no-binary": _BINARY, _NO_INDEX: ("UV_DEFAULT_INDEX", "UV_INDEX", *_INDEX, *_MORE)}
"""Settings that uv has as options of the same names, and what takes their place."""
_STRATEGY = "UV_INDEX_STRATEGY"
_SECTIONS = ("global", "install")


def for_uv(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables for uv that say what pip is configured with, by its files and ``PIP_`` variables.

    What uv is configured with itself stays: by ``environ``, by its files for the user and the machine, or by those in
    ``folder``.
    """
    pip, own = _of_pip(environ), {*environ, *_of_uv(folder, environ)}
    found = dict[str, str]()
    for name, variable, written, instead in _SETTINGS:
        value = written(pip.get(name, "").strip())
        if value and own.isdisjoint((variable, *instead)):
            found[variable] = value
    if "UV_INDEX" in found and own.isdisjoint((_STRATEGY, "index-strategy")):
        found[_STRATEGY] = "unsafe-best-match"  # as pip has it: the best version that any of the indexes has
    return found


def options(folder: Path, environ: Mapping[str, str]) -> list[str]:
    """Return options of ``uv pip install`` for pip's settings that no variable of uv's could say. See `for_uv`."""
    pip, own = _of_pip(environ), {*environ, *_of_uv(folder, environ)}
    found = []
    for name in (one for one, instead in _OPTIONS.items() if own.isdisjoint(instead)):
        words = pip.get(name, "").replace(",", " ").split()
        if name == _NO_INDEX:
            found += [f"--{name}"] if words and words[0].lower() in _YES else []
        else:
            found += [f"--{name}={word}" for word in words]
    return found


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
