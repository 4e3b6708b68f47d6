"""The parent of a worker, beside what tests of whole workers see."""

import os
import signal
import sys
from typing import Any

import pytest

from runner.tasks import parent
from runner.tasks.parent import _Kept


def test_one_on_demand_is_due_once_it_is_needed_or_nobody_says_that_it_is_not() -> None:
    kept = _Kept(os.environ, (), on_demand=True)
    assert 0 < kept.due <= parent.SILENT
    kept.is_needed(in_seconds=1000)
    assert parent.SILENT < kept.due <= 1000
    kept.is_needed(in_seconds=0)
    kept.is_needed(in_seconds=1000)
    assert kept.due <= 0


@pytest.mark.slow  # it starts a process
@pytest.mark.parametrize(("asked", "code"), [(True, 0), (False, -signal.SIGTERM)])
def test_a_worker_that_is_asked_to_end_before_it_has_begun_ended_well(asked: bool, code: int, eventually: Any) -> None:
    """Where starting takes longer than being idle, `--until-idle` would start another one for ever."""
    kept = _Kept(os.environ, ())
    kept._pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    if asked:
        kept.ask()
    else:
        os.kill(kept._pid, signal.SIGTERM)
    eventually(kept.has_ended, why="it ended")
    assert kept.code == code
