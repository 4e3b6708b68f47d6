"""SQLite databases in a task's folder that are open while they are recorded and restored."""

import contextlib
import sqlite3
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from runner.bundles.attempt_folders import take
from runner.bundles.task_files import Workdir
from runner.core.errors import TaskError
from runner.core.jobs import Job


@pytest.fixture
def make(tmp_path: Path) -> Any:
    jobs = (Job("r-1", "main", f"task {number}", 1) for number in count())

    def make() -> Workdir:
        job = next(jobs)  # of its own, as a folder is held for its attempt
        return Workdir(lambda: take("store", tmp_path, job), lambda: (None, ()), lambda path: True)

    return make


def opened(work: Workdir, mode: str = "delete") -> Any:
    there = sqlite3.connect(work.folder / "memory.db", isolation_level=None)
    there.execute(f"PRAGMA journal_mode={mode}")
    return contextlib.closing(there)


def begin(session: sqlite3.Connection) -> None:
    session.execute("CREATE TABLE said (text)")
    session.execute("INSERT INTO said VALUES ('of the session')")


def said(session: sqlite3.Connection) -> list[str]:
    return [text for (text,) in session.execute("SELECT text FROM said")]


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("begins", [begin, lambda session: None], ids=["written", "empty"])
def test_a_database_that_the_task_has_open_is_restored_and_stays_open(make, mode, begins):
    # Given a session that keeps its database open, into which a tool writes, too
    first = make()
    with opened(first, mode) as session:
        begin(session)
        mark = first.mark()
        with contextlib.closing(sqlite3.connect(first.folder / "memory.db")) as tool, tool:
            tool.execute("INSERT INTO said VALUES ('of the tool')")
        left = first.changed(mark)
    assert [path for path, content in left.items() if content] == ["memory.db"]
    # When the task restarts, and the use of the tool is replayed
    again = make()
    with opened(again, mode) as session:
        begins(session)
        again.lay(left)
        # Then the session has what the tool wrote, and what it writes itself is not lost
        assert said(session) == ["of the session", "of the tool"]
        mark = again.mark()
        session.execute("INSERT INTO said VALUES ('later')")
        assert "memory.db" in again.changed(mark)
    with opened(again) as after:
        assert said(after) == ["of the session", "of the tool", "later"]
    # And it is restored as a file where nobody has it open
    last = make()
    last.lay(again.changed())
    with opened(last) as after:
        assert said(after) == ["of the session", "of the tool", "later"]


SERVER = """
import sqlite3
there = sqlite3.connect("memory.db", isolation_level=None)
there.execute("PRAGMA journal_mode=wal")
there.execute("CREATE TABLE IF NOT EXISTS said (text)")
print("open", flush=True)
while line := input():
    there.execute("INSERT INTO said VALUES (?)", [line])
    print("done", flush=True)
"""


def test_a_database_that_a_server_of_tools_has_open_is_restored_and_stays_open(make):
    left = {}
    for line in ("first", "second"):
        # Given a process that the task began, and that keeps a database open
        work = make()
        words, pipes = [sys.executable, "-c", SERVER], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(words, cwd=work.folder, text=True, **pipes) as server:
            assert server.stdout.readline() == "open\n"
            # When a use is replayed, and it writes once more
            work.lay(left)
            mark = work.mark()
            print(line, file=server.stdin, flush=True)
            assert server.stdout.readline() == "done\n"
            left = work.changed(mark)
            print(file=server.stdin, flush=True)
            server.wait(30)
    # Then all of it is there
    with opened(work) as after:
        assert said(after) == ["first", "second"]


LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0x40000001)
"""
"""Takes the lock that SQLite has while a transaction writes."""


def test_a_lock_of_the_task_on_its_database_is_not_lost_when_that_is_recorded(make):
    work = make()
    with opened(work) as session:
        begin(session)
        session.execute("BEGIN IMMEDIATE")
        work.changed()
        taken = subprocess.run([sys.executable, "-c", LOCKED, work.folder / "memory.db"], stderr=subprocess.PIPE)
    assert b"BlockingIOError" in taken.stderr or b"PermissionError" in taken.stderr


def test_a_database_in_a_transaction_of_the_task_is_not_overwritten(make):
    first, again = make(), make()
    with opened(first) as session:
        begin(session)
    left = first.changed()
    with opened(again) as session:
        session.execute("CREATE TABLE own (text)")
        session.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            TaskError, match=r"^what a tool wrote to memory\.db cannot be restored: database is locked; "
        ):
            again.lay(left)


def test_a_file_of_another_kind_with_a_log_beside_it_is_recorded_as_it_is(make):
    work = make()
    for name in ("notes", "notes-wal", "lost-wal"):
        (work.folder / name).write_text(name)
    assert work.changed() == {"notes": "notes", "notes-wal": "notes-wal", "lost-wal": "lost-wal"}
