"""What the programs of all peers share: they say when they are ready, and begin when they are told to."""

import json
import sys
import time
from collections.abc import Callable


def ready() -> None:
    """Everything is imported and connected: wait for the word to begin."""
    print("ready", flush=True)
    sys.stdin.readline()


def timed(work: Callable[[], object]) -> None:
    """Do this when told to, and print how many seconds it took."""
    ready()
    began = time.perf_counter()
    work()
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
