"""Copies an SQLite database whole, with its log: a program for `open_databases`.

In its own process, since closing any descriptor of a file loses all locks on it, and SQLite may be another one.
"""

import contextlib
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

PATIENCE = 5.0  #: seconds for which the database may be locked


def main(verb: str, database: str) -> None:
    """``read`` the database to stdout, or ``write`` stdin into it. Exits with SQLite's reason if it cannot."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "copy")
        if verb == "write":
            copy.write_bytes(sys.stdin.buffer.read())
        there = f"{Path(database).as_uri()}?mode=rw"
        try:
            with (
                contextlib.closing(sqlite3.connect(there, uri=True, timeout=0)) as live,
                contextlib.closing(sqlite3.connect(copy)) as kept,
            ):
                _copy(*((live, kept) if verb == "read" else (kept, live)))
        except sqlite3.Error as error:
            sys.exit(str(error))
        if verb == "read":
            sys.stdout.buffer.write(copy.read_bytes())


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    until = time.monotonic() + PATIENCE

    def give_up(status: int, *_: int) -> None:  # as `backup` tries for ever
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() > until:
            raise sqlite3.OperationalError("database is locked")

    source.backup(target, progress=give_up, sleep=0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
