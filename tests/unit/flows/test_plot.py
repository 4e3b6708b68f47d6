"""The picture of a flow: what is in it, that it needs nothing else to be shown, and where its parts are."""

import itertools
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.flows import Flow, and_, listen, or_, router, start
from runner.flows.layout import GAP, layout
from runner.flows.plot import Arrow, arrows, picture


class Report(Flow[dict[str, Any]]):
    @start()
    def collect(self) -> str:
        return "notes"

    @router(or_(collect, "again"), emit=["good", "bad", "<again>", "again"])
    def judge(self) -> str:
        return "good"

    @listen(or_("good", "bad"))
    def write(self) -> None: ...

    @listen(and_(write, collect))
    def send(self) -> None: ...

    @listen(or_("never said", "<again>"))
    def never(self) -> None: ...


def test_a_flow_is_drawn_as_it_is_defined() -> None:
    assert sorted(arrows(Report.flow_definition())) == [
        Arrow('"never said"', "never", on_label=True),
        Arrow("collect", "judge"),
        Arrow("collect", "send"),
        Arrow("judge", "judge", on_label=True, label="again"),
        Arrow("judge", "never", on_label=True, label="<again>"),
        Arrow("judge", "write", on_label=True, label="bad, good"),
        Arrow("write", "send"),
    ]
    drawn = ElementTree.fromstring(picture(Report.flow_definition()))
    assert sorted(text.text or "" for text in drawn.iter("text")) == sorted(
        ["collect", "judge", "write", "send", "never", '"never said"', "again", "<again>", "bad, good"]
    )
    assert len([path for path in drawn.iter("path") if path.get("class") == "arrow"]) == 7


@pytest.mark.parametrize("given", ["flow", "flow.html"])
def test_the_picture_is_a_page_that_asks_nobody_for_more(tmp_path: Path, given: str) -> None:
    path = Report().plot(str(tmp_path / given), show=False)
    assert path == str((tmp_path / "flow.html").resolve())
    page = Path(path).read_text("utf-8")
    assert picture(Report.flow_definition()) in page
    assert not re.search(r"https?:|<script|<link|src=|@import|url\((?!#)", page)


NAMES = st.integers(0, 12).map("box {}".format)


@given(st.dictionaries(NAMES, st.floats(10, 300), min_size=1), st.lists(st.tuples(NAMES, NAMES), max_size=30))
def test_boxes_stand_apart_and_arrows_go_from_one_to_the_other(
    widths: dict[str, float], drawn: list[tuple[str, str]]
) -> None:
    drawn = [(a, b) for a, b in drawn if a in widths and b in widths]
    found = layout(widths, drawn)
    # No two boxes of a layer touch, and all are in the picture
    for (one, (x, y)), (other, (to_x, to_y)) in itertools.combinations(found.places.items(), 2):
        assert y != to_y or abs(x - to_x) >= (widths[one] + widths[other]) / 2 + GAP - 1e-6
    for name, (x, y) in found.places.items():
        assert widths[name] / 2 <= x <= found.width - widths[name] / 2
        assert 0 < y < found.height
    # An arrow leads from one box to the other, down or up all the way, and up only where it closes a cycle
    for (one, other), route in zip(drawn, found.routes, strict=True):
        assert (route[0], route[-1]) == (found.places[one], found.places[other])
        steps = [b - a for (_, a), (_, b) in itertools.pairwise(route)]
        assert one == other or all(step > 0 for step in steps) or one in _reached(other, drawn)
        assert one == other or len({step > 0 for step in steps}) == 1


def _reached(name: str, drawn: list[tuple[str, str]]) -> set[str]:
    found, todo = {name}, [name]
    while todo:
        at = todo.pop()
        new = {b for a, b in drawn if a == at} - found
        found |= new
        todo.extend(new)
    return found
