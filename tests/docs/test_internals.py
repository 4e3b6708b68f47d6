"""docs/internals.md lists the packages in the order of their imports. Its diagrams: `test_diagrams`."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/internals.md").read_text("utf-8")


def test_the_packages_stand_in_the_order_of_their_imports() -> None:
    """Each may import those below it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["name"] == "imports point one way")
    level = {name: number for number, layer in enumerate(layers) for name in re.findall(r"\w+", layer)}
    told = re.findall(r"(?m)^\| `(?:runner/)?(\w+)/(?:\w+/)*` \|", PAGE)
    assert set(told) == set(level) - {"__main__"}
    assert [level[name] for name in told] == sorted(level[name] for name in told)
