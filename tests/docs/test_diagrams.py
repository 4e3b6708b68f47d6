"""The diagrams of docs/internals.md are those that the code draws."""

import sys
from pathlib import Path

OPS = Path(__file__).parents[2] / "ops/docs"


def test_the_page_has_what_is_drawn(monkeypatch):
    monkeypatch.syspath_prepend(str(OPS))
    import diagrams

    page = diagrams.PAGE.read_text()
    assert diagrams.put(page, diagrams.drawn()) == page, "python ops/docs/diagrams.py --write"
    del sys.modules["diagrams"]
