"""What was measured, as a row; and the rows as a Markdown table."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

HEAD = ("what", "runner", "peer in the same run", "ratio", "to reach", "reached")


@dataclass
class Row:
    """One number beside what it is compared with. ``reached`` is None where there is nothing to reach."""

    name: str
    what: str
    value: float
    ours: str
    goal: str = ""
    reached: bool | None = None
    peer: str = ""
    ratio: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    def cells(self) -> tuple[str, ...]:
        met = {True: "yes", False: "**no**", None: ""}[self.reached]
        return self.what, self.ours, self.peer, self.ratio, self.goal, met

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def markdown(rows: Iterable[Row]) -> str:
    lines = [HEAD, ("---",) * len(HEAD), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(samples: Sequence[float], digits: int = 3, unit: str = " s") -> str:
    """Median with the least, the most, and how many."""
    middle = statistics.median(samples)
    least, most = min(samples), max(samples)
    return f"{middle:.{digits}f}{unit} ({least:.{digits}f} to {most:.{digits}f}, n={len(samples)})"


def rate(samples: Sequence[float], unit: str = "/s") -> str:
    """Median and best of the rounds."""
    return f"{statistics.median(samples):,.0f}{unit} (best {max(samples):,.0f})"


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios round by round: what disturbs a round disturbs both."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
