"""Other interpreters, forked where one like it was: what they import is there already."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from runner.testing import fleet


def started(*words: str | Path, **options: Any) -> "subprocess.Popen[Any]":
    """``python WORDS...``, as `subprocess.Popen` starts it."""
    return fleet.launch([sys.executable, *map(str, words)], **options)


def run(*words: str | Path, within: float = 60, **options: Any) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` with its output kept as text."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(*words, **pipes, **options) as process:
        try:
            said, complaints = process.communicate(timeout=within)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, said, complaints)


def ran(*words: str | Path, within: float = 60, **options: Any) -> str:
    """What it says. Fails if it fails, with its complaints."""
    done = run(*words, within=within, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout
