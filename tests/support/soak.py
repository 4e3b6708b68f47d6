"""Cases of a test that only the soak runs."""

from typing import Any

import pytest


def in_soak(*cases: Any) -> list[Any]:
    """For ``parametrize("pool", ["prefork", *in_soak("shared")])``; a tuple has a value for each parameter."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.soak) for case in cases]
