"""Measure the runner beside plain Celery and raw Redis, in one run, on this machine: prints one Markdown table.

    python ops/bench/run.py [--quick] [--only NAME ...] [--rounds N] [--json FILE] [--svg FILE]

Needs what ``pip install -e .`` installs, and nothing else.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import machine
from servers import serving
from table import Row, markdown

NAMES = (
    *("child", "worker", "frozen", "term", "steps", "map", "crew", "processor", "runs", "batch", "calls"),
    *("storage", "replicas", "fork", "heartbeat", "servers"),
)  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rounds, few kills, under two minutes")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, help="interleaved rounds (5; 2 with --quick); four kills for each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and samples there")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the hand-over times there")
    return parser.parse_args()


def measure(wanted: set[str], rounds: int, quick: bool) -> Iterator[Row]:
    """Each group on a fresh server."""
    import calls
    import forks
    import handover
    import heartbeat
    import partitions
    import replicas
    import storage
    import throughput

    if wanted & {"child", "worker", "frozen", "term"}:
        with serving() as server:
            yield from handover.measure(server, wanted, kills=max(4, 4 * rounds))
    if wanted & {"steps", "map", "crew", "processor", "runs", "batch"}:
        with serving() as server:
            yield from throughput.measure(server, wanted, rounds)
    if "calls" in wanted:
        with serving() as server:
            yield from calls.measure(server, rounds)
    if "storage" in wanted:
        with serving() as server:
            yield from storage.measure(server, tasks=2000 if quick else 10_000)
    if "replicas" in wanted:
        yield from replicas.measure(tasks=200 if quick else 1000)
    if "fork" in wanted:
        with serving() as server:
            yield from forks.measure(server, tasks=1000)
    if "heartbeat" in wanted:
        with serving() as server:
            yield from heartbeat.measure(server, seconds=5 if quick else 10)
    if "servers" in wanted:
        yield from partitions.measure(rounds, runs=400 if quick else 2000)


def main() -> None:
    options = arguments()
    rounds = options.rounds or (2 if options.quick else 5)
    wanted = set(options.only or NAMES)
    began = time.monotonic()
    before = f"load before {machine.load()}, calibration {machine.calibration():.1f} ms"
    rows = []
    for row in measure(wanted, rounds, options.quick):
        print(f"[{time.monotonic() - began:5.0f} s] {row.name}: {row.ours}", file=sys.stderr, flush=True)
        rows.append(row)
    after = f"after {machine.load()}, {machine.calibration():.1f} ms"
    about = f"{machine.describe()}; {before}; {after}; {rounds} rounds, {time.monotonic() - began:.0f} s"
    print(markdown(rows), about, sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps({"about": about, "rows": [row.as_json() for row in rows]}, indent=1))
    if options.svg:
        from plot import handover_svg

        options.svg.write_text(handover_svg(rows))


if __name__ == "__main__":
    main()
