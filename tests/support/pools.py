"""A test of a worker that is the same with each pool has one of them in each test run; the soak has the others.

They take turns in the order of the tests, so that each pool has as many of them.
"""

from collections import defaultdict
from collections.abc import Iterable

import pytest

PARAMETER = "pool"


def left_to_the_soak(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Of the cases that differ in their pool alone all but one."""
    alike: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        parameters = dict(getattr(getattr(item, "callspec", None), "params", {}))
        if parameters.pop(PARAMETER, None) is not None and not item.get_closest_marker("soak"):
            alike[f"{item.nodeid.partition('[')[0]} {parameters}"].append(item)
    turns = enumerate(alike.values())
    return [item for turn, cases in turns for at, item in enumerate(cases) if at != turn % len(cases)]
