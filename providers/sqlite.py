"""Checkpoints in one SQLite file: a table ``checkpoints``, one row each, in the order of their row ids.

Any SQLite that Python has will do. The file is in WAL mode and synced at each write; several processes may write.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from runner.core import fault_points
from runner.core.errors import BadCheckpoint, StoreUnreachable
from runner.providers import inflight
from runner.providers.base import (
    BaseProvider,
    CheckpointInfo,
    CheckpointNotFound,
    CheckpointTorn,
    check_branch,
    check_keep,
    created_at,
    excess,
    logger,
    make_id,
    seems_whole,
    torn,
)

_HEAD = b"SQLite format 3\0"
_PATIENCE = 30.0  #: seconds to wait for another writer

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS checkpoints (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, parent_id TEXT, "
    "branch TEXT NOT NULL DEFAULT 'main', data TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS checkpoints_by_branch ON checkpoints (branch, id, parent_id)",
)
_INSERT = "INSERT INTO checkpoints (id, created_at, parent_id, branch, data) VALUES (?, ?, ?, ?, ?)"
_LINKS = "SELECT id, parent_id FROM checkpoints WHERE branch = ? ORDER BY rowid"
_LISTS = (
    "SELECT rowid, id, parent_id, branch FROM checkpoints NOT INDEXED WHERE branch = coalesce(?, branch)",
    "SELECT rowid, id, parent_id, branch FROM checkpoints WHERE branch = coalesce(?, branch)",
)
_SIZE = "SELECT length(CAST(data AS BLOB)) FROM checkpoints WHERE id = ?"


@dataclass(frozen=True, slots=True)
class _Row:
    id: str
    parent_id: str | None


class SqliteProvider(BaseProvider):
    """Keeps checkpoints in an SQLite file; one is named ``FILE#ID``."""

    provider_type: Literal["sqlite"] = "sqlite"

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = "main") -> str:
        """Insert a row, durably. Returns ``FILE#ID``."""
        check_branch(branch)
        Path(location).parent.mkdir(parents=True, exist_ok=True)
        with _open(location, "rwc") as database:
            _prepare(database)
            while True:
                checkpoint_id = make_id(parent_id)
                row = (checkpoint_id, checkpoint_id.partition("_")[0], parent_id, branch, data)
                # Two processes may make one id in one microsecond.
                with contextlib.suppress(sqlite3.IntegrityError), _transaction(database):
                    fault_points.reached("checkpoint begun, not whole")
                    database.execute(_INSERT, row)
                    inflight.mark_ahead(f"{location}-", checkpoint_id)
                    fault_points.reached("checkpoint whole, not synced")
                    break
        fault_points.reached("checkpoint named, not told")
        return f"{location}#{checkpoint_id}"

    def prune(self, location: str, max_keep: int, *, branch: str = "main", head: str | None = None) -> int:
        """Delete the oldest rows of a branch, but of no line in flight that is not ``head``'s, all at once."""
        check_keep(max_keep)
        check_branch(branch)
        if not Path(location).exists():
            return 0
        with _open(location, "rw") as database, _transaction(database):
            if not _has_table(database):
                return 0
            rows = [_Row(*row) for row in database.execute(_LINKS, (branch,))]
            # While we have the write lock: what was marked before it could be seen in a row still is.
            held = inflight.marked(f"{location}-") if head is not None else ()
            gone = excess(rows, max_keep, head, lambda row: _seems_whole(database, row), held)
            for row in gone:
                database.execute("DELETE FROM checkpoints WHERE id = ?", (row.id,))
                fault_points.reached("checkpoints pruned in part")
        return len(gone)

    def hold(self, location: str, instead_of: str | None = None) -> None:
        """By a file beside the database, with a lock."""
        path, checkpoint_id = _split(location)
        inflight.mark(f"{path}-", checkpoint_id, instead_of)

    def release(self, location: str) -> None:
        """Remove that file."""
        path, checkpoint_id = _split(location)
        inflight.unmark(f"{path}-", checkpoint_id)

    def extract_id(self, location: str) -> str:
        """Return the checkpoint's id: what follows the last ``#`` of its location."""
        return _split(location)[1]

    def from_checkpoint(self, location: str) -> str:
        """Read a row."""
        path, checkpoint_id = _split(location)
        try:
            with _reading(path) as database:
                return _read(database, location, checkpoint_id)
        except sqlite3.DatabaseError as error:
            if not Path(path).exists() or "no such table" in str(error):
                raise CheckpointNotFound(f"Checkpoint not found: {location}") from None
            _raise_if_not_of_the_file(error, path)
            raise CheckpointTorn(f"Checkpoint is torn: {location} cannot be read: {error}") from None

    def checkpoints(self, location: str, branch: str | None = None) -> list[CheckpointInfo]:
        """The rows of a file, oldest first; of a damaged file, those that are left."""
        if branch is not None:
            check_branch(branch)
        if not Path(location).exists():
            return []
        try:
            with _reading(location) as database:
                database.execute("BEGIN")  # what is read is of one moment
                return _listed(database, location, branch) if _has_table(database) else []
        except sqlite3.DatabaseError as error:
            _raise_if_not_of_the_file(error, location)
            logger.warning("Checkpoint file %s cannot be read: %s", location, error)
            return []


def _listed(database: sqlite3.Connection, location: str, branch: str | None) -> list[CheckpointInfo]:
    # The table and the index hold the same names: of a damaged file, one may have what the other lost.
    rows: dict[int, tuple[str, str | None, str]] = {}
    for statement in _LISTS:
        try:
            for row_id, *names in database.execute(statement, (branch,)):
                rows[row_id] = tuple(names)
            break
        except sqlite3.DatabaseError as error:
            _raise_if_not_of_the_file(error, location)
            logger.warning("Checkpoint file %s is damaged: %s", location, error)
    found = []
    for _, (checkpoint_id, parent_id, on) in sorted(rows.items()):
        size, complete = 0, True
        try:
            size = database.execute(_SIZE, (checkpoint_id,)).fetchone()[0]
        except sqlite3.DatabaseError as error:
            _raise_if_not_of_the_file(error, location)
            complete = False
        own = f"{location}#{checkpoint_id}"
        found.append(CheckpointInfo(checkpoint_id, parent_id, on, own, created_at(checkpoint_id), size, complete))
    return found


def _raise_if_not_of_the_file(error: sqlite3.DatabaseError, location: str) -> None:
    """Raise what says nothing of what is in the file: another writer has it for too long, or we may not look."""
    if "locked" in str(error):
        raise error
    if "unable to open" in str(error):
        raise StoreUnreachable(
            f"{location} cannot be opened (SQLite: {error}): check the permissions of the file and its directory"
        ) from None


def _read(database: sqlite3.Connection, location: str, checkpoint_id: str) -> str:
    found = database.execute("SELECT data FROM checkpoints WHERE id = ?", (checkpoint_id,)).fetchone()
    if found is None:
        raise CheckpointNotFound(f"Checkpoint not found: {location}")
    if isinstance(found[0], str):
        if not seems_whole(found[0]):
            raise torn(location)
        return found[0]
    # Another program stored SQLite's binary JSON, which only newer ones can read.
    try:
        text: str = database.execute("SELECT json(data) FROM checkpoints WHERE id = ?", (checkpoint_id,)).fetchone()[0]
    except sqlite3.OperationalError:
        raise CheckpointTorn(
            f"Checkpoint cannot be read: {location} holds binary JSON, for SQLite 3.45 or newer; "
            f"this is {sqlite3.sqlite_version}"
        ) from None
    return text


def _seems_whole(database: sqlite3.Connection, row: _Row) -> bool:
    ends = "SELECT substr(data, 1, 64) || substr(data, -64) FROM checkpoints WHERE id = ?"
    text = database.execute(ends, (row.id,)).fetchone()[0]
    return not isinstance(text, str) or seems_whole(text)


def _split(location: str) -> tuple[str, str]:
    path, mark, checkpoint_id = location.rpartition("#")
    if not mark:
        raise CheckpointNotFound(f"Checkpoint not found: {location} (one is named FILE#ID)")
    return path, checkpoint_id


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as those of SQLite do; what follows may be damaged."""
    with path.open("rb") as file:
        return file.read(len(_HEAD)) == _HEAD


@contextlib.contextmanager
def _open(path: str, mode: str, *options: str) -> Iterator[sqlite3.Connection]:
    """A connection without implicit transactions. Only ``rwc`` makes a file that is not there."""
    database = sqlite3.connect(
        f"file:{quote(str(path))}?{'&'.join((f'mode={mode}', *options))}",
        uri=True,
        timeout=_PATIENCE,
        isolation_level=None,
    )
    try:
        yield database
    except sqlite3.DatabaseError as error:
        if "file is not a database" in str(error) and not is_sqlite(Path(path)):
            raise BadCheckpoint(f"{path} is not an SQLite database: name another file, or remove it") from None
        raise
    finally:
        database.close()


def _reading(path: str) -> contextlib.AbstractContextManager[sqlite3.Connection]:
    """To read alone. Where nothing may be written, not even what WAL needs beside the file, it is taken as it lies."""
    return _open(path, "ro", "immutable=1") if _lies_still(Path(path)) else _open(path, "rw")


def _lies_still(path: Path) -> bool:
    """Whether we may not write beside it, and no process has it open to write: then there would be a WAL."""
    return not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. It takes the write lock at once: waiting for it later would be refused."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled it back itself
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _prepare(database: sqlite3.Connection) -> None:
    """WAL, synced at each commit, with our table in it."""
    end = time.monotonic() + _PATIENCE
    while database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        # Changing the mode does not wait for another process that does the same.
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
    database.execute("PRAGMA synchronous = FULL")
    if not _has_table(database):
        with _transaction(database):
            for statement in _SCHEMA:
                database.execute(statement)


def _has_table(database: sqlite3.Connection) -> bool:
    return bool(database.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'").fetchone())
