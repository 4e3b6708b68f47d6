"""The command ``runner``, and ``python -m runner``."""

import sys

from runner.core import hash_seed

_RUN_CODE = ("submit", "worker")  #: the verbs in whose process, or in forks of it, a crew's code runs


def main() -> None:
    """Entry point of ``runner``."""
    if sys.argv[1:2] and sys.argv[1] in _RUN_CODE:
        hash_seed.fix()  # before anything that takes long is imported
    from runner.cli import main

    main()


if __name__ == "__main__":
    main()
