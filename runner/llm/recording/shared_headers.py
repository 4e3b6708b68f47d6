"""Requests that wait for their answers at the same time share their headers, most of which are alike."""

from functools import lru_cache
from typing import Any


def share(request: Any) -> None:
    """Have a request of httpx share its headers with others: they take 3 KB of each."""
    found = getattr(request.headers, "_list", None)
    if type(found) is list:
        found[:] = map(_shared, found)


@lru_cache(maxsize=256)
def _shared(header: Any) -> Any:
    return header
