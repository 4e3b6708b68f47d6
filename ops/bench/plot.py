"""The hand-over times as a picture: an SVG on a logarithmic scale, made with the standard library."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from table import Row

LEAST, MOST = 0.005, 10_000.0
WIDTH, LEFT, RIGHT, LINE, TOP = 860, 330, 70, 24, 64
TICKS = ((0.01, "10 ms"), (0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (100, "100 s"), (1000, "1,000 s"))
OURS, THEIRS, FAINT = "#0b6e4f", "#7a7a7a", "#dddddd"

LABELS = {
    "child": "SIGKILL of a pool child",
    "worker": "SIGKILL of a whole worker",
    "term": "SIGTERM",
    "frozen-short": "frozen worker, lease 0.5 s",
    "frozen": "frozen worker, lease 5 s (default)",
}


@dataclass(frozen=True)
class Line:
    """Median and range in seconds; ``measured`` is False for a time that follows from a setting and was not awaited."""

    label: str
    middle: float
    least: float
    most: float
    measured: bool = True


#: SIGKILL of the process that works, until another does the first step. Measured once, on a machine of this kind,
#: but not in the same run; each peer's own defaults unless it says otherwise.
QUOTED = (
    Line("Restate 1.7, retries after 20 ms", 0.14, 0.14, 0.17),
    Line("redflow 0.1, lease 0.2 s", 0.27, 0.25, 0.30),
    Line("Restate 1.7", 0.72, 0.71, 0.74),
    Line("DBOS 3.4, the same executor started again", 1.65, 1.65, 1.76),
    Line("redflow 0.1", 3.24, 3.19, 3.29),
    Line("Temporal 1.32, start-to-close timeout 10 s", 10.6, 10.2, 11.0),
    Line("Celery 5.7, late acks, visibility timeout 5 s", 89.4, 89.4, 89.4),
    Line("absurd 0.5 (its claim timeout)", 120, 120, 120, measured=False),
    Line("Celery 5.7 (its visibility timeout)", 3600, 3600, 3600, measured=False),
)


def handover_svg(rows: Iterable[Row]) -> str:
    found = {row.name: [time for times in row.samples.values() for time in times] for row in rows}
    ours = [
        Line(label, statistics.median(found[name]), min(found[name]), max(found[name]))
        for name, label in LABELS.items()
        if found.get(name)
    ]
    height = TOP + LINE * (len(ours) + len(QUOTED) + 3) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(16, 26, "From the signal to the next step in another process", size=16),
        _text(
            16,
            44,
            "median and range, logarithmic; shorter is better; hollow: by its setting, not awaited",
            fill=THEIRS,
            size=12,
        ),
    ]
    bottom = height - 30
    for at, label in TICKS:
        parts.append(f'<line x1="{_x(at)}" x2="{_x(at)}" y1="{TOP}" y2="{bottom}" stroke="{FAINT}"/>')
        parts.append(_text(_x(at), bottom + 18, label, fill=THEIRS, size=12, anchor="middle"))
    y = TOP + LINE / 2
    for title, lines, colour in (
        ("the runner, this run", ours, OURS),
        ("others, SIGKILL of the worker, not in this run", QUOTED, THEIRS),
    ):
        parts.append(_text(16, y + 5, title, fill=colour, weight="bold"))
        y += LINE
        for line in lines:
            parts += _draw(line, y, colour)
            y += LINE
        y += LINE / 2
    return "\n".join([*parts, "</svg>", ""])


def _draw(line: Line, y: float, colour: str) -> list[str]:
    fill = colour if line.measured else "white"
    return [
        _text(LEFT - 12, y + 5, line.label, anchor="end"),
        f'<line x1="{_x(line.least)}" x2="{_x(line.most)}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>',
        f'<circle cx="{_x(line.middle)}" cy="{y}" r="5" fill="{fill}" stroke="{colour}" stroke-width="2"/>',
        _text(_x(line.most) + 12, y + 5, _seconds(line.middle), fill=colour, size=12),
    ]


def _x(seconds: float) -> float:
    share = (math.log(seconds) - math.log(LEAST)) / (math.log(MOST) - math.log(LEAST))
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:,.3g} s" if value < 1000 else f"{value:,.0f} s"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    fill: str = "#222222",
    size: int = 13,
    anchor: str = "start",
    weight: str = "normal",
) -> str:
    style = f'fill="{fill}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'
