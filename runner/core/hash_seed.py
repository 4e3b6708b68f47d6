"""The order of a set of strings: the same in every process that runs a crew's code.

Python draws a seed for its hashes in each process, as it starts. An agent that iterates over a set would make other
requests after a restart, and pay for them again. A ``PYTHONHASHSEED`` that the operator has set is kept.
"""

import os
import sys
from collections.abc import Mapping

NAME, SEED = "PYTHONHASHSEED", "0"


def with_seed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return these environment variables, with the seed for an interpreter that is started with them."""
    return {**environ, NAME: environ.get(NAME) or SEED}


def is_fixed() -> bool:
    """Whether this process was started with a seed."""
    return bool(os.environ.get(NAME))


def fix() -> bool:
    """Replace this process by one with the seed, unless it has it. Returns False if it cannot be replaced.

    A program that calls the command itself has begun something before; one read from stdin is gone.
    """
    given = sys.argv[1:]
    is_command = sys.orig_argv[len(sys.orig_argv) - len(given) :] == given and sys.argv[0] != "-"
    if not is_fixed() and sys.executable and is_command:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], with_seed(os.environ))
    return is_fixed()
