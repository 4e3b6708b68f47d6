"""The numbers of a main process's files for its children, which inherit them."""

import os

import pytest

from runner.tasks import descriptors


def test_numbers_that_select_knows_are_left_to_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "PLAIN", 200)
    read, write = os.pipe()
    moved = descriptors.out_of_the_way(read)
    assert moved >= 200
    assert not os.get_inheritable(moved)
    os.write(write, b"x")
    assert os.read(moved, 1) == b"x"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)

    # Where there are no such numbers it stays
    monkeypatch.setattr(descriptors, "PLAIN", 2**31 - 1)
    assert descriptors.out_of_the_way(write) == write
    os.write(write, b"y")
    os.close(moved)
    os.close(write)
