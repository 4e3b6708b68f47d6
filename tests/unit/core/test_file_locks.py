"""Files that processes hold by a lock: one that none holds is had alone."""

import fcntl
import os
from pathlib import Path

import pytest

from runner.core.file_locks import unheld


def test_what_is_not_held_is_had_alone(tmp_path: Path) -> None:
    with unheld(tmp_path, os.O_DIRECTORY) as handle:
        assert os.path.samestat(os.fstat(handle), tmp_path.stat())
        with pytest.raises(BlockingIOError), unheld(tmp_path):
            pass
    with unheld(tmp_path):
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_what_is_held_is_not(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with pytest.raises(BlockingIOError), unheld(tmp_path / "file", os.O_RDWR):
            pass
    with unheld(tmp_path / "file"):
        (tmp_path / "file").unlink()
    with pytest.raises(FileNotFoundError), unheld(tmp_path / "file"):
        pass
