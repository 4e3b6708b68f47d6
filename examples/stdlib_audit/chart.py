"""Draws: a scatter plot as SVG, and bars as text."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from statistics import median
from typing import Any, NamedTuple

from ranking import plotted

WIDTH, HEIGHT = 1000, 640
LEFT, RIGHT, TOP, BOTTOM = 72, 976, 112, 572  # the frame of the plot
TEXT, MUTED, GRID = "#1f2937", "#6b7280", "#e5e7eb"
PRIVATE = "#9ca3af"
# From undocumented to documented; orange and blue stay apart for the colour-blind.
COLOURS = [
    (0.25, "#c2410c", "under 25 %"),
    (0.50, "#f59e0b", "25 to 50 %"),
    (0.75, "#60a5fa", "50 to 75 %"),
    (1.01, "#1d4ed8", "over 75 %"),
]
LABELS = 40
LABEL_SIZE = 11.5


class Box(NamedTuple):
    """A rectangle, from its left upper corner to its right lower one."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Whether the two overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def wider(self, margin: float) -> "Box":
        """The same with a margin around it."""
        return Box(self.left - margin, self.top - margin, self.right + margin, self.bottom + margin)


class Dot(NamedTuple):
    """A package in the plot."""

    x: float
    y: float
    radius: float
    colour: str
    name: str
    about: str

    @property
    def box(self) -> Box:
        """The square around it."""
        return Box(self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)


class Scale(NamedTuple):
    """Maps values to positions, evenly or by their logarithms."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        part = ((math.log(value) if self.log else value) - low) / (high - low)
        return self.start + part * (self.end - self.start)


def scatter(ranks: dict[str, Any]) -> str:
    """The packages by size and mean complexity, coloured by how much of them is documented."""
    packages = plotted(ranks["packages"])
    sizes = [package["code"] for package in packages] or [100]
    means = [package["complexity"] for package in packages] or [1]
    across = Scale(min(sizes) / 1.25, max(sizes) * 1.35, LEFT, RIGHT, log=True)
    up = Scale(0.8, max(*means, 2) * 1.06, BOTTOM, TOP)
    dots = [dot(package, across, up) for package in packages]
    shapes = [
        *frame(ranks, len(packages)),
        *grid(across, up),
        *medians(across, up, sizes, means),
        *(draw(found) for found in sorted(dots, key=lambda found: (-found.radius, found.name))),
        *labels(dots),
        *legend(),
    ]
    return "\n".join([*shapes, "</svg>", ""])


def dot(package: dict[str, Any], across: Scale, up: Scale) -> Dot:
    """Where a package stands, and how it looks."""
    share = package["documented"] / package["public"] if package["public"] else None
    about = (
        f"{package['package']}: {package['code']:,} lines of code, {package['functions']:,} functions, "
        f"mean complexity {package['complexity']:.1f}, "
        + ("private" if share is None else f"{share:.0%} of public names documented")
    )
    radius = 2.5 + math.sqrt(package["functions"]) * 0.42  # the area says how many functions
    return Dot(across(package["code"]), up(package["complexity"]), radius, colour(share), package["package"], about)


def colour(share: float | None) -> str:
    """The colour for a documented share."""
    return PRIVATE if share is None else next(colour for limit, colour, _ in COLOURS if share < limit)


def frame(ranks: dict[str, Any], count: int) -> list[str]:
    """The card, the headings and the names of the axes."""
    heading = f"{ranks['title']}: size and complexity of {count} packages"
    below = f"{ranks['python']}. Packages and single modules with at least 10 functions; test suites left out."
    middle = (TOP + BOTTOM) / 2
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img" aria-label="{escape(heading)}" font-family="Helvetica, Arial, \'Liberation Sans\', sans-serif">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10" fill="#ffffff" stroke="{GRID}"/>',
        text(24, 36, heading, size=20, weight="bold"),
        text(24, 58, below, size=13, fill=MUTED),
        text((LEFT + RIGHT) / 2, HEIGHT - 22, "lines of code (logarithmic)", size=13, anchor="middle"),
        f'<g transform="rotate(-90 22 {middle:g})">'
        + text(22, middle, "mean cyclomatic complexity of its functions", size=13, anchor="middle")
        + "</g>",
    ]


def grid(across: Scale, up: Scale) -> list[str]:
    """Lines at round values, with the values."""
    shapes = []
    for value in (step * 10**power for power in range(7) for step in (1, 2, 5)):
        if across.low <= value <= across.high:
            shapes.append(line(across(value), TOP, across(value), BOTTOM, GRID))
            shapes.append(text(across(value), BOTTOM + 20, f"{value:,}", fill=MUTED, anchor="middle"))
    every = max(1, round(up.high / 8))
    for value in range(1, math.ceil(up.high), every):
        shapes.append(line(LEFT, up(value), RIGHT, up(value), GRID))
        shapes.append(text(LEFT - 10, up(value) + 4, str(value), fill=MUTED, anchor="end"))
    return shapes


def medians(across: Scale, up: Scale, sizes: Sequence[float], means: Sequence[float]) -> list[str]:
    """Dashed lines through the middle: half of the packages are to each side."""
    x, y = across(median(sizes)), up(median(means))
    return [
        line(x, TOP, x, BOTTOM, PRIVATE, dash="5 4"),
        line(LEFT, y, RIGHT, y, PRIVATE, dash="5 4"),
        text(x + 5, BOTTOM - 8, f"median {median(sizes):,.0f} lines", size=11, fill=MUTED, style="italic"),
        text(RIGHT - 4, y - 6, f"median {median(means):.1f}", size=11, fill=MUTED, anchor="end", style="italic"),
    ]


def labels(dots: list[Dot]) -> list[str]:
    """The names of the packages that stand out, each where nothing else is; one without a free place has none."""
    taken = [found.box.wider(3) for found in dots]  # room to see which dot a name belongs to
    shapes: list[str] = []
    for found in sorted(dots, key=lambda found: (-outstanding(found), found.name)):
        if len(shapes) == LABELS:
            break
        others = [box for box in taken if box != found.box.wider(3)]
        for box, anchor in around(found):
            if is_free(box, others):
                taken.append(box)
                x = {"start": box.left, "middle": (box.left + box.right) / 2, "end": box.right}[anchor]
                shapes.append(text(x, box.bottom - 3.5, found.name, size=LABEL_SIZE, anchor=anchor, halo=True))
                break
    return shapes


def outstanding(found: Dot) -> float:
    """How far from the crowd: large, complex or unlike the others."""
    return found.radius / 6 + (BOTTOM - found.y) / (BOTTOM - TOP) * 3 + (found.x - LEFT) / (RIGHT - LEFT)


def around(found: Dot) -> Iterable[tuple[Box, str]]:
    """The places for a name, the best first: beside the dot, above and below it, and at two corners."""
    wide, high = len(found.name) * LABEL_SIZE * 0.6, LABEL_SIZE + 3  # as wide as the widest common font
    far, near = found.radius + 3, found.radius * 0.7 + 2
    right, left, level = found.x + far, found.x - far - wide, found.y - high / 2
    for x, y, anchor in (
        (right, level, "start"),
        (left, level, "end"),
        (found.x - wide / 2, found.y - far - high, "middle"),
        (found.x - wide / 2, found.y + far, "middle"),
        (found.x + near, found.y - near - high, "start"),
        (found.x + near, found.y + near, "start"),
    ):
        yield Box(x, y, x + wide, y + high), anchor


def is_free(box: Box, others: Iterable[Box]) -> bool:
    """Whether the place is inside the frame and meets nothing."""
    inside = box.left > LEFT and box.right < RIGHT and box.top > TOP - 8 and box.bottom < BOTTOM - 22
    return inside and not any(box.meets(other) for other in others)


def legend() -> list[str]:
    """What the colours and the sizes mean."""
    shapes = [text(24, 88, "Public names with a docstring:", size=12)]
    x = 222.0
    for fill, name in [*((fill, name) for _, fill, name in COLOURS), (PRIVATE, "private")]:
        shapes.append(circle(x, 84, 6, fill))
        shapes.append(text(x + 11, 88, name, size=12))
        x += 94
    x += 8
    shapes.append(text(x, 88, "Functions:", size=12))
    x += 76
    for count in (10, 100, 1000):
        radius = 2.5 + math.sqrt(count) * 0.42
        shapes.append(circle(x + radius, 84, radius, "#ffffff", stroke=MUTED))
        shapes.append(text(x + 2 * radius + 5, 88, f"{count:,}", size=12))
        x += 2 * radius + 40
    return shapes


def draw(found: Dot) -> str:
    """The dot, with what a mouse over it says."""
    return circle(found.x, found.y, found.radius, found.colour, title=found.about)


def circle(x: float, y: float, radius: float, fill: str, stroke: str = "#ffffff", title: str = "") -> str:
    """A filled circle."""
    about = f"<title>{escape(title)}</title>" if title else ""
    shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" fill-opacity="0.85" stroke="{stroke}"'
    return f"{shape}>{about}</circle>" if about else f"{shape}/>"


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, dash: str = "") -> str:
    """A straight line."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{dashes}/>'


def text(
    x: float,
    y: float,
    words: str,
    size: float = 12,
    fill: str = TEXT,
    anchor: str = "start",
    weight: str = "normal",
    style: str = "normal",
    halo: bool = False,
) -> str:
    """Words, with a white edge around them if they stand among dots."""
    edge = ' stroke="#ffffff" stroke-width="3" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}" text-anchor="{anchor}"'
        f' font-weight="{weight}" font-style="{style}"{edge}>{escape(words)}</text>'
    )


def bars(rows: Iterable[tuple[str, float, str]], width: int = 36) -> str:
    """A bar chart in plain text: name, bar, and what is said after it."""
    rows = list(rows)
    longest = max((len(name) for name, _, _ in rows), default=0)
    largest = max((value for _, value, _ in rows), default=0) or 1
    return "\n".join(f"{name:<{longest}}  {bar(value / largest, width)}  {words}" for name, value, words in rows)


def bar(part: float, width: int) -> str:
    """A bar of blocks, exact to an eighth of a character."""
    full, rest = divmod(round(part * width * 8), 8)
    return ("█" * full + " ▏▎▍▌▋▊▉"[rest].strip()).ljust(width)
