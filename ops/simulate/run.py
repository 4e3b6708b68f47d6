"""Simulate many histories, each from a seed, or one again: `python ops/simulate/run.py --seeds 1000`."""

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from world import World, Wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began, faults = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.seeds):
            world = World(seed, Path(folder))
            faults += world.faults
            try:
                world.run()
            except Wrong as wrong:
                print(f"{wrong}\nagain: python ops/simulate/run.py --first {seed} --seeds 1")
                return 1
    print(f"{given.seeds} histories, up to {faults} faults, 0 wrong, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
