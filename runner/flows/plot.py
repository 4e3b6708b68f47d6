"""Draws a flow as a self-contained page: its methods and what each waits for."""

import html
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from runner.flows.definition import FlowDefinition, Method
from runner.flows.layout import Point, layout

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{name}</title>
<style>
:root {{ color-scheme: light dark; font: 14px system-ui, sans-serif; }}
svg {{ display: block; margin: auto; }}
.box {{ fill: Canvas; stroke: CanvasText; stroke-width: 1.5; }}
.start {{ stroke: #2a8a4a; stroke-width: 2.5; }}
.router {{ stroke: #b7791f; stroke-width: 2.5; }}
.label {{ stroke-dasharray: 4 4; }}
text {{ fill: CanvasText; text-anchor: middle; dominant-baseline: central; }}
.arrow {{ fill: none; stroke: CanvasText; stroke-width: 1.5; marker-end: url(#head); }}
.on {{ font-size: 12px; stroke: Canvas; stroke-width: 6px; }}
</style>
<h1>{name}</h1>
{picture}
"""
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L10 5L0 10z" fill="CanvasText"/></marker></defs>'
)
_HALF = 20.0  #: of a box's height, in pixels
_ASIDE = 16.0  #: how far at the right of the way down an arrow leads up


class Arrow(NamedTuple):
    """An arrow from a method to a listener; with ``on_label``, the ``label`` names the router's labels."""

    start: str
    end: str
    on_label: bool = False
    label: str = ""


def arrows(definition: FlowDefinition) -> list[Arrow]:
    """Return an arrow for each method and trigger. A label that no method declares is drawn like a method."""
    found: dict[Arrow, list[str]] = {}
    for name, listeners in definition.listeners.items():
        said_by = [one for one, method in definition.methods.items() if name in method.emit]
        for method in listeners:
            if name in definition.methods:
                found[Arrow(name, method.name)] = []
            for one in said_by:
                found.setdefault(Arrow(one, method.name, on_label=True), []).append(name)
            if name not in definition.methods and not said_by:
                found[Arrow(f'"{name}"', method.name, on_label=True)] = []
    return [arrow._replace(label=", ".join(labels)) for arrow, labels in found.items()]


def picture(definition: FlowDefinition) -> str:
    """Return the flow as SVG: entry points are round, routers have pointed ends, and arrows for labels are dashed."""
    found = arrows(definition)
    names = dict.fromkeys([*definition.methods, *(arrow.start for arrow in found)])
    widths = {name: 8.0 * len(name) + 44 for name in names}
    drawn = layout(widths, [(arrow.start, arrow.end) for arrow in found])
    paths, labels = [], []
    for arrow, route in zip(found, drawn.routes, strict=True):
        path, (x, y) = _around(route[0], widths[arrow.start] / 2) if arrow.start == arrow.end else _along(route)
        dashes = ' stroke-dasharray="4 4"' if arrow.on_label else ""
        paths.append(f'<path class="arrow"{dashes} d="{path}"/>')
        if arrow.label:
            text = html.escape(arrow.label)
            labels.append(f'<text class="on" paint-order="stroke" x="{x:.1f}" y="{y:.1f}">{text}</text>')
    boxes = [_box(definition.methods.get(name), name, drawn.places[name], widths[name] / 2) for name in names]
    size = f'width="{drawn.width:.0f}" height="{drawn.height:.0f}" viewBox="0 0 {drawn.width:.0f} {drawn.height:.0f}"'
    title = f"<title>{html.escape(definition.name)}</title>"
    return f'<svg role="img" {size}>{title}{_HEAD}{"".join([*paths, *boxes, *labels])}</svg>'


def _box(method: Method | None, name: str, at: Point, half: float) -> str:
    (x, y), high = at, _HALF
    if method is not None and method.router and not method.start:
        sides = f"h{2 * half - 24:.1f}l12 {high}l-12 {high}h{24 - 2 * half:.1f}l-12 {-high}z"
        outline = f'<path class="box router" d="M{x - half + 12:.1f} {y - high:.1f}{sides}"/>'
    else:
        kind = "label" if method is None else "start" if method.start else "method"
        corner = f'x="{x - half:.1f}" y="{y - high:.1f}" rx="{4 if kind == "method" else high}"'
        outline = f'<rect class="box {kind}" {corner} width="{2 * half:.1f}" height="{2 * high}"/>'
    return f'{outline}<text x="{x:.1f}" y="{y:.1f}">{html.escape(name)}</text>'


def _along(route: Sequence[Point]) -> tuple[str, Point]:
    """The path of an arrow through these points, from the edge of one box to another, and the position of its label."""
    down = 1 if route[0][1] < route[-1][1] else -1
    aside = 0.0 if down > 0 else _ASIDE  # of one that comes down the same way
    points = [(x + aside, y) for x, y in route]
    points[0], points[-1] = (points[0][0], points[0][1] + down * _HALF), (points[-1][0], points[-1][1] - down * _HALF)
    path = "M{:.1f} {:.1f}".format(*points[0])
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        half = (y + to_y) / 2
        path += f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}"
    return path, ((points[0][0] + points[1][0]) / 2, (points[0][1] + points[1][1]) / 2)


def _around(at: Point, half: float) -> tuple[str, Point]:
    """The path of an arrow from a method to itself, at its right, and the position of its label."""
    x, y = at[0] + half, at[1]
    path = f"M{x - 6:.1f} {y - 14:.1f}C{x + 30:.1f} {y - 34:.1f} {x + 30:.1f} {y + 34:.1f} {x - 6:.1f} {y + 14:.1f}"
    return path, (x + 21, y)


def write(definition: FlowDefinition, filename: str) -> Path:
    """Write the page. Returns where it is."""
    path = Path(filename)
    path = path if path.suffix == ".html" else path.with_name(f"{path.name}.html")
    path.write_text(_PAGE.format(name=html.escape(definition.name), picture=picture(definition)), "utf-8")
    return path.resolve()
