"""What the journal costs a call of a model: with it, without it, and served from it; in one task, against a server that
answers at once."""

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

from fleet import HERE, Fleet
from servers import Server
from table import Row, median_ratio, rate

from runner.client import Client, prepare

CALLS = 1000


@contextlib.contextmanager
def instant() -> Iterator[str]:
    """The address of a model server that answers at once."""
    with subprocess.Popen([sys.executable, HERE / "instant.py"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def measure(server: Server, rounds: int) -> Iterator[Row]:
    crew = prepare(f"{HERE / 'crews' / 'crew.py'}:calls")
    found: dict[str, list[float]] = {"with": [], "without": [], "replayed": []}
    turns: dict[str, list[list[float]]] = {"with": [], "without": []}
    with instant() as url, Client(server.url) as client, Fleet(server, 1):
        for number in range(rounds + 1):
            told = json.loads(client.submit(crew, {"url": url, "calls": CALLS}).wait(120).result or "{}")
            if number:  # the first round warms up
                for name, rates in found.items():
                    rates.append(CALLS / told[name])
                for name, taken in turns.items():
                    taken.append(told["turns"][name])
    yield row(turns, found["with"], found["without"])
    yield replayed_row(found["replayed"], found["without"])


def row(turns: dict[str, list[list[float]]], ours: list[float], bare: list[float]) -> Row:
    """Call by call in turns, by medians, and beside it by lower quartiles, and by the means of rows of each kind.

    In turns each call has the same behind it, and of both kinds as many meet what else the machine does meanwhile. In a
    row, a call that is not journaled finds its own code in the caches, as no call of an agent does.
    """
    lower, median = (
        statistics.median(1e6 * (a[at] - b[at]) for a, b in zip(turns["with"], turns["without"], strict=True))
        for at in range(2)
    )
    rows = statistics.median(1e6 / a - 1e6 / b for a, b in zip(ours, bare, strict=True))
    of = {name: [1 / taken[1] for taken in each] for name, each in turns.items()}
    return Row(
        "calls",
        f"calls of a model, journaled: {median:.0f} µs more each in turns (medians; lower quartiles {lower:.0f}; means "
        f"of rows of their own {rows:.0f})",
        median, rate(of["with"]), "< 250 µs", median < 250,
        f"{rate(of['without'])}: the same client, not journaled", f"{median_ratio(of['with'], of['without']):.2f}",
        {"ours": of["with"], "peer": of["without"], "rows_ours": ours, "rows_peer": bare},
    )  # fmt: skip


def replayed_row(ours: list[float], bare: list[float]) -> Row:
    return Row(
        "calls", "calls of a model, served from the journal", statistics.median(ours), rate(ours), "", None,
        f"{rate(bare)}: the same client, not journaled", f"{median_ratio(ours, bare):.2f}",
        {"ours": ours, "peer": bare},
    )  # fmt: skip
