"""What a pool child says of the calls that are out, read by others when it is dead."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.journal import shared_memory
from runner.testing import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shared_memory, "_sent", None)
    return shared_memory.share_sent("host-1-abcdef", "s")


def child(does: Callable[[Callable[[str], None]], object], place: int) -> int:
    """A child in this place of the pool, to its end; its pid."""
    pid = os.fork()
    if not pid:
        say = shared_memory.slot(place)
        if say is not None:
            does(say)
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_what_a_dead_child_said_is_read_though_another_took_its_place(path: str) -> None:
    first = child(lambda say: [say("7 one"), say("7 two")], 3)
    second = child(lambda say: say("8 else"), 3)
    assert shared_memory.read_marks(path) == {str(first): "7 two", str(second): "8 else"}
    child(lambda say: None, 3)
    assert shared_memory.read_marks(path) == {str(second): "8 else"}
    shared_memory.remove(path)
    assert shared_memory.read_marks(path) == {}


@pytest.mark.parametrize("many", range(7))
def test_what_is_said_by_turns_is_read_as_it_was_said_last(path: str, many: int) -> None:
    texts = ["7 none", "7 one", "7 none", "7 two", "7 two", "7 one"]
    pid = child(lambda say: [say(text) for text in texts[:many]], 5)
    assert shared_memory.read_marks(path) == ({str(pid): texts[many - 1]} if many else {})


def test_nothing_is_known_of_what_does_not_fit(path: str, tmp_path: Path) -> None:
    child(lambda say: [say("7 one"), say("x" * shared_memory.HALF)], 4)
    child(lambda say: say("7 one"), shared_memory.CHILDREN)
    assert shared_memory.read_marks(path) == {}
    assert shared_memory.slot(None) is None
    other = tmp_path / "else"
    other.touch()
    shared_memory.remove(str(other))
    assert other.exists(), "no other file is touched"


def test_what_the_dead_left_behind_is_swept_away(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, needed, of_another, old = (shared_by_one_who_dies(store) for store in ("s", "s", "another", "another"))
    shared_memory.sweep("s", {needed})
    assert {str(one) for one in tmp_path.iterdir()} == {path, needed, of_another, old}
    assert left not in {path, needed}
    monkeypatch.setattr(shared_memory, "ABANDONED", -1)
    shared_memory.sweep("s", {needed, of_another})
    assert {str(one) for one in tmp_path.iterdir()} == {path, needed, of_another}


def test_a_file_stays_while_any_process_of_its_worker_lives(tmp_path: Path, path: str) -> None:
    shared_memory.remove(path)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(write)
        shared_memory.share_sent("host-4-abcdef", "s")
        if not os.fork():
            os.read(read, 1)  # a child that outlives its parent, until the test closes the pipe
        os._exit(0)
    os.waitpid(pid, 0)
    assert not shared_memory.is_final(str(next(tmp_path.iterdir())))
    os.close(read)
    try:
        shared_memory.sweep("s", ())
        assert len(list(tmp_path.iterdir())) == 1
    finally:
        os.close(write)
    eventually(lambda: not shared_memory.sweep("s", ()) and not list(tmp_path.iterdir()))


def shared_by_one_who_dies(store: str) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, shared_memory.share_sent("host-3-abcdef", store).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read) as said:
        return said.read()
