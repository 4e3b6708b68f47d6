"""The command ``runner``, and ``python -m runner``."""

import sys

from runner.core import hash_seed

_RUN_CODE = ("submit", "worker")  #: the verbs in whose process, or in forks of it, a crew's code runs


def main() -> None:
    """Entry point of ``runner``."""
    # Before anything that takes long is imported
    if sys.argv[1:2] and sys.argv[1] in _RUN_CODE and not hash_seed.fix():
        sys.stderr.write(f"warning: start this program with {hash_seed.NAME} set, as workers and submitters are\n")
    from runner.cli import main

    main()


if __name__ == "__main__":
    main()
