"""Resolves WHERE: a run, or a location of files, SQLite or Redis."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from runner.client.checkpoints.model import Source
from runner.core.errors import NotFound, UsageError
from runner.providers.base import BaseProvider
from runner.providers.json import JsonProvider
from runner.snapshots import locations

if TYPE_CHECKING:
    from runner.client import Client

HERE = ("./.checkpoints", "./.checkpoints.db")
"""Where a config writes that says nothing else: with the default provider, and with `SqliteProvider`."""

_RUN = re.compile(r"r-[0-9a-f]{12}")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")  #: of a Redis, or of a provider that is installed under that scheme
_OF_FILES = ("json", "sqlite")


def is_run(where: str) -> bool:
    """Whether this names a run: it looks like an id, or nothing else has that name. Raises `UsageError`."""
    if not where.strip():
        raise UsageError("the location is empty: name a run, a directory, an SQLite file or a redis:// URL")
    if _RUN.fullmatch(where):
        return True
    return not _URL.match(where) and not _exists(_path(where)) and not _looks_like_a_path(where)


def holds_something(where: str) -> bool:
    """Whether ``where`` is a directory with files in it."""
    return any(not name.startswith(".") for _, _, names in os.walk(where) for name in names)


@contextlib.contextmanager
def opened(where: str) -> Iterator[Source]:
    """Open the source of checkpoints at ``where``. Raises `NotFound` if there is none, and errors of opening it."""
    if is_run(where):
        from runner.client import Client
        from runner.client.checkpoints.fleet import RunSource

        with Client() as client:
            yield RunSource(*run_called(client, where))
        return
    from runner.client.checkpoints.stored import StoredSource

    source = StoredSource(where)
    if not _URL.match(where) or source.provider.provider_type in _OF_FILES:
        _refuse_what_is_no_place(source.where, source.provider)
    yield source


def run_called(client: "Client", where: str) -> tuple["Client", str]:
    """Return the client of the server that has the run WHERE, and its id. Raises `NotFound`."""
    client = client.of(where)
    run_id = client.id_of(where)
    if not _RUN.fullmatch(where) and not client.store.runs.existing([run_id]):
        raise NotFound(f"there is no directory, file or run {where}")
    return client, run_id


def here() -> str:
    """Return the default WHERE: a location in this directory, else the newest run. Raises `NotFound`."""
    there = [place for place in HERE if Path(place).exists()]
    if there:
        return next(filter(_holds_checkpoints, there), there[0])
    from runner.client import Client

    with Client() as client:
        newest = client.runs(1)
    if not newest:
        raise NotFound(f"there is no {HERE[0]} here and no run yet: name a run, a directory, a file or a redis:// URL")
    return newest[0].id


def _holds_checkpoints(place: str) -> bool:
    """Whether a directory has checkpoints, and not only persisted states of flows."""
    return Path(place).is_file() or next(JsonProvider().newest_first(place), None) is not None


def _refuse_what_is_no_place(where: str, provider: BaseProvider) -> None:
    path = _path(where)
    if not _exists(path):
        raise NotFound(f"there is no directory, file or run {where}")
    if path.is_dir() and (around := locations.place_around(where)) != where:
        raise UsageError(
            f"{where} is a branch of the checkpoints in {around}: name that, as in "
            f"runner checkpoint list {around} --branch {path.relative_to(around)}"
        )
    if path.is_dir() or (provider.provider_type != "json" and path == Path(where)):
        return
    place = locations.place_of(path) if provider.provider_type == "json" else path
    if place is None:
        raise UsageError(f"{where} is neither a directory of checkpoints nor an SQLite file of them")
    raise UsageError(
        f"{where} is one checkpoint: name the location that holds it, as in "
        f"runner checkpoint show {place} {provider.extract_id(where)}"
    )


def _path(where: str) -> Path:
    """Return the path of a location: in SQLite, the id of a checkpoint follows a ``#``."""
    path = Path(where)
    return path if _exists(path) else Path(where.rpartition("#")[0] or where)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that no file can have
        return False


def _looks_like_a_path(where: str) -> bool:
    return "/" in where or where.startswith(".") or Path(where.partition("#")[0]).suffix in (".db", ".json", ".sqlite")
