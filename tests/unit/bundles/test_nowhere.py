"""Where a process is that does tasks of many runs: nowhere, and nobody else is there."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.bundles import relative_paths
from runner.engine import code_cache
from runner.engine.code_cache import AttemptFolder


@pytest.fixture
def process() -> Iterator[Callable[[Callable[[], Any]], int]]:
    """Starts a process that does something, says so, and waits to be killed."""
    pids = []

    def start(does: Callable[[], Any]) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            with contextlib.suppress(BaseException):
                does()
                os.write(write, b".")
                signal.pause()
            os._exit(1)
        os.close(write)
        assert os.read(read, 1) == b"."
        os.close(read)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        with contextlib.suppress(OSError):
            kill(pid)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.mark.slow
def test_processes_of_one_number_have_folders_of_their_own(
    process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In containers that share a cache: whoever came second removed the working directory of the first.
    monkeypatch.setattr(relative_paths.os, "getpid", lambda: 7)
    first, second = (process(lambda: relative_paths.enter(tmp_path)) for _ in range(2))
    there = {Path(f"/proc/{pid}/cwd").readlink() for pid in (first, second)}
    assert len(there) == 2
    assert all(folder.is_dir() for folder in there)


@pytest.mark.slow
def test_folders_of_dead_processes_go_and_others_stay(
    process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = (process(lambda: relative_paths.enter(tmp_path)) for _ in range(2))
    stays = Path(f"/proc/{alive}/cwd").readlink()
    kill(dead)
    relative_paths.sweep(tmp_path)
    assert len(list((tmp_path / "nowhere").iterdir())) == 2, "it may have been made just now"
    monkeypatch.setattr(relative_paths, "FRESH", -1)
    relative_paths.sweep(tmp_path)
    assert list((tmp_path / "nowhere").iterdir()) == [stays]


def test_a_task_that_ends_takes_no_code_that_is_read_away_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a pool of threads: a crew file that opened "data.txt" failed its run if another task ended meanwhile.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(relative_paths, "_here", [])
    relative_paths.enter(tmp_path / "cache")
    here, root = Path.cwd(), tmp_path / "root"
    root.mkdir()
    claim: Any = SimpleNamespace(adapter="native")
    folder = AttemptFolder(claim, SimpleNamespace(), SimpleNamespace(), lambda: tmp_path / "work")
    with code_cache._at(root):
        other = threading.Thread(target=folder.leave)
        other.start()
        other.join()
        assert Path.cwd() == root
    assert Path.cwd() == here
    os.chdir(root)
    folder.leave()
    assert Path.cwd() == here


@pytest.mark.slow
def test_a_process_that_a_task_forks_has_its_folder_while_another_task_makes_one(tmp_path: Path) -> None:
    claim: Any = SimpleNamespace(adapter="native")
    folder = AttemptFolder(claim, SimpleNamespace(), SimpleNamespace(), lambda: tmp_path / "work")
    held, done = threading.Event(), threading.Event()

    def other() -> None:
        with code_cache._making:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    held.wait(60)
    if not (child := os.fork()):
        signal.alarm(10)
        folder._made()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert status == 0


def test_a_folder_is_listed_only_where_something_may_have_been_made_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, listdir = [], relative_paths._listdir
    monkeypatch.setattr(relative_paths, "_here", [str(tmp_path)])
    monkeypatch.setattr(relative_paths, "_listdir", lambda path: listed.append(path) or listdir(path))
    for _ in range(3):
        assert relative_paths.stray_files() == []
    assert len(listed) == 3, "it has just been made: what is made now may have the same time"
    os.utime(tmp_path, (1e9, 1e9))
    for _ in range(3):
        assert relative_paths.stray_files() == []
    assert len(listed) == 4
    (tmp_path / "report.txt").write_text("stray")
    assert relative_paths.stray_files() == ["report.txt"]
    assert relative_paths.stray_files() == []
    assert len(listed) == 6
