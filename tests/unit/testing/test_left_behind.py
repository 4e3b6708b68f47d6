"""What a test left changed in its process is found, and named."""

import contextvars
import logging
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ...support.left_behind import changes, state

VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("of_this_test")
CHANGED: dict[str, Callable[[pytest.MonkeyPatch, Path], Any]] = {
    "os.environ: LEFT": lambda patch, _: patch.setenv("LEFT", "1"),
    "process: working directory": lambda patch, folder: patch.chdir(folder),
    "process: sys.path": lambda patch, folder: patch.setattr(sys, "path", [*sys.path, str(folder)]),
    "process: root logger": lambda patch, _: patch.setattr(logging.root, "level", 33),
    "signals: SIGUSR2": lambda *_: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    "random: choice": lambda patch, _: patch.setattr(random, "choice", min),
    "StreamHandler: format": lambda patch, _: patch.setattr(logging.StreamHandler, "format", str, raising=False),
    "context: of_this_test": lambda *_: VARIABLE.set(1),
}


@pytest.mark.parametrize("named", CHANGED)
def test_each_change_is_named_until_it_is_taken_back(
    named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = state()
    usual = signal.getsignal(signal.SIGUSR2)
    try:
        CHANGED[named](monkeypatch, tmp_path)
        assert changes(before, state()) == [named]
    finally:
        signal.signal(signal.SIGUSR2, usual)
        monkeypatch.undo()
    assert set(changes(before, state())) <= {"context: of_this_test"}


def test_no_test_has_what_another_one_set_in_its_context() -> None:
    assert VARIABLE.get(0) == 0
