"""The test command itself: what it takes from the shell, and what it leaves."""

import os
import sys


def test_bytecode_is_kept_whatever_the_shell_says():
    """Else each of the hundreds of processes that tests start compiles all that it imports."""
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ
    assert not sys.dont_write_bytecode
