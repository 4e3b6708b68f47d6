"""POSTs of a tool to a service that a setting names carry the tool's idempotency key, by whichever transport."""

import fnmatch
import functools
import hashlib
import re

from runner.core.idempotency import key_of_use
from runner.core.settings import idempotent_endpoints
from runner.llm.recording import multipart
from runner.llm.recording.parsers import place_of

NAME = "Idempotency-Key"


@functools.cache
def pattern() -> re.Pattern[str] | None:
    """What the hosts and paths fit that ``RUNNER_IDEMPOTENT_ENDPOINTS`` names; None for none."""
    named = idempotent_endpoints()
    return re.compile("|".join(map(fnmatch.translate, named))) if named else None


def is_wanted(method: str, url: str) -> bool:
    """Whether a request that is made here is to have the header."""
    fits = pattern()
    return fits is not None and method == "POST" and key_of_use() is not None and fits.match(place_of(url)) is not None


def value_for(url: str, body: bytes) -> str:
    """The header's value for a request that is to have it.

    It is the same each time the tool's use is attempted, and where a client repeats the request. Another request of
    the same use has another one.
    """
    key = key_of_use() or ""
    said = multipart.comparable(body) if multipart.is_one(body) else body
    return hashlib.sha256(b"%b\n%b\n%b" % (key.encode(), url.encode(), said)).hexdigest()[:32]
