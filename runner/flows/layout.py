"""Computes the layout of a small graph: layers from the top, with few crossings.

Sugiyama's method: arrows that close a cycle are reversed, each box stands below all that lead to it, long arrows get a
bend in each layer, and each layer is ordered and placed near what its boxes are joined to.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Point: TypeAlias = tuple[float, float]
_Box: TypeAlias = "str | tuple[int, int]"  #: a box by its name, or the bend of an arrow in a layer

LAYER, GAP = 92.0, 28.0  #: between the middles of two layers, and between two neighbours in one, in pixels
_SWEEPS = 8


@dataclass(frozen=True)
class Layout:
    """Where everything is: the middle of each box, and for each arrow the points that it passes, both ends included."""

    places: Mapping[str, Point]
    routes: Sequence[Sequence[Point]]
    width: float
    height: float


def layout(widths: Mapping[str, float], arrows: Sequence[tuple[str, str]]) -> Layout:
    """Place boxes of these widths, in pixels, and the arrows between them."""
    turned = _closing(widths, arrows)
    down = [(b, a) if index in turned else (a, b) for index, (a, b) in enumerate(arrows)]
    ranks = _ranks(widths, down)
    layers: list[list[_Box]] = [[] for _ in range(max(ranks.values(), default=0) + 1)]
    for name, rank in ranks.items():
        layers[rank].append(name)
    chains: list[list[_Box]] = []
    above, below = defaultdict[_Box, list[_Box]](list), defaultdict[_Box, list[_Box]](list)
    for index, (a, b) in enumerate(down):
        bends = [(index, rank) for rank in range(ranks[a] + 1, ranks[b])]
        for bend in bends:
            layers[bend[1]].append(bend)
        chains.append([a, *bends, b])
        for one, other in itertools.pairwise(chains[-1] if a != b else ()):
            below[one].append(other)
            above[other].append(one)
    wide = {box: widths[box] if isinstance(box, str) else 0.0 for box in itertools.chain(*layers)}
    x = _placed(layers, wide, above, below)
    y = {box: (rank + 0.5) * LAYER for rank, layer in enumerate(layers) for box in layer}
    left = min((x[box] - wide[box] / 2 for box in x), default=0.0) - GAP
    right = max((x[box] + wide[box] / 2 for box in x), default=0.0) + GAP
    routes = [[(x[box] - left, y[box]) for box in chain] for chain in chains]
    return Layout(
        {name: (x[name] - left, y[name]) for name in widths},
        [route[::-1] if index in turned else route for index, route in enumerate(routes)],
        right - left,
        len(layers) * LAYER,
    )


def _closing(boxes: Mapping[str, float], arrows: Sequence[tuple[str, str]]) -> set[int]:
    """The arrows that lead back to where a walk along the others came from."""
    leaving = defaultdict[str, list[int]](list)
    for index, (start, _) in enumerate(arrows):
        leaving[start].append(index)
    found, on_the_way, seen = set[int](), set[str](), set[str]()
    for root in boxes:
        walk = [(root, iter(leaving[root]))] if root not in seen else []
        seen.add(root)
        on_the_way.add(root)
        while walk:
            at, more = walk[-1]
            for index in more:
                end = arrows[index][1]
                if end in on_the_way:
                    found.add(index)
                elif end not in seen:
                    seen.add(end)
                    on_the_way.add(end)
                    walk.append((end, iter(leaving[end])))
                    break
            else:
                on_the_way.discard(at)
                walk.pop()
        on_the_way.clear()
    return found


def _ranks(boxes: Mapping[str, float], down: Sequence[tuple[str, str]]) -> dict[str, int]:
    """In which layer each box is: below all that lead to it."""
    waits, leads = dict.fromkeys(boxes, 0), defaultdict[str, list[str]](list)
    for start, end in down:
        if start != end:
            waits[end] += 1
            leads[start].append(end)
    ranks = dict.fromkeys(boxes, 0)
    ready = [name for name, count in waits.items() if not count]
    for name in ready:  # which grows
        for end in leads[name]:
            ranks[end] = max(ranks[end], ranks[name] + 1)
            waits[end] -= 1
            if not waits[end]:
                ready.append(end)
    return ranks


def _placed(
    layers: list[list[_Box]],
    widths: Mapping[_Box, float],
    above: Mapping[_Box, list[_Box]],
    below: Mapping[_Box, list[_Box]],
) -> dict[_Box, float]:
    """Order each layer by where its neighbours are, and give each box its place across; sweep down and up."""
    x: dict[_Box, float] = {}
    for layer in layers:
        x.update(_apart(layer, [0.0] * len(layer), widths))
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            orders = sweep < _SWEEPS // 2  # by the layer that stands; then the order does, and both sides pull
            sides = (above, below) if not orders else (above,) if sweep % 2 == 0 else (below,)
            near = {box: [x[one] for side in sides for one in side.get(box, ())] for box in layer}
            wanted = {box: sum(at) / len(at) if at else x[box] for box, at in near.items()}
            if orders:
                layer.sort(key=wanted.__getitem__)
            x.update(_apart(layer, [wanted[box] for box in layer], widths))
    return x


def _apart(layer: Sequence[_Box], wanted: Sequence[float], widths: Mapping[_Box, float]) -> dict[_Box, float]:
    """The places nearest to those ``wanted``, by least squares, at which no two boxes of a layer touch."""
    offsets = [0.0]
    for one, other in itertools.pairwise(layer):
        offsets.append(offsets[-1] + (widths[one] + widths[other]) / 2 + GAP)
    blocks: list[tuple[float, int]] = []  # the mean of what they want, and how many stand side by side
    for want, offset in zip(wanted, offsets, strict=False):
        mean, size = want - offset, 1
        while blocks and blocks[-1][0] >= mean:
            before, count = blocks.pop()
            mean, size = (before * count + mean * size) / (count + size), count + size
        blocks.append((mean, size))
    means = itertools.chain.from_iterable([mean] * size for mean, size in blocks)
    return {box: mean + offset for box, mean, offset in zip(layer, means, offsets, strict=False)}
