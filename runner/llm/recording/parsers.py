"""Which requests of services that this product does not know are calls of models: said by packages that are installed.

A package adds a parser as an entry point of the group ``crew_runner.call_parsers``; a setting names hosts and paths.
"""

import fnmatch
import functools
import json
import re
from collections.abc import Iterable
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from runner.core.ledger import Usage
from runner.core.settings import model_endpoints
from runner.llm.recording import multipart

GROUP = "crew_runner.call_parsers"


class CallParser:
    """Knows the calls of one service. An entry point gives an instance.

    The endpoints of the known vendors are looked at before, so a parser adds to them and changes none.
    """

    def may_be(self, method: str, url: str) -> bool:  # noqa: ARG002 - the names are for those who override it
        """Whether a request may be a call of a model, before its body is read.

        Asked for each HTTP request of a process that performs tasks: be quick.
        """
        return False

    def model(self, url: str, body: bytes) -> str | None:  # noqa: ARG002 - a hook
        """Return the name of the model that a request calls, for the ledger; None if it is no call of a model."""
        return None

    def last_line(self, url: str) -> bytes | None:  # noqa: ARG002 - a hook
        """Return a regular expression for the last line of a streamed answer; None if it ends with the response.

        With one, a stream that breaks off before that line is not recorded.
        """
        return None

    def usage(self, body: bytes) -> Usage | None:  # noqa: ARG002 - a hook
        """Return the tokens that an answer reports; None if it reports them as one of the known vendors does."""
        return None


class NamedEndpoints(CallParser):
    """Knows the calls of services that a setting names: each POST to a host and path that fits one of the patterns."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._fits = re.compile("|".join(map(fnmatch.translate, patterns)))

    def may_be(self, method: str, url: str) -> bool:
        """Whether it is a POST there."""
        return method == "POST" and self._fits.match(place_of(url)) is not None

    def model(self, url: str, body: bytes) -> str:
        """The model that the body names, or else the host and path."""
        if multipart.is_one(body):
            return multipart.field(body, "model") or place_of(url)
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        named = found.get("model") if isinstance(found, dict) else None
        return named if isinstance(named, str) and named else place_of(url)


def place_of(url: str) -> str:
    """The host and path of an address."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path


@functools.cache
def parsers() -> tuple[CallParser, ...]:
    """Return the installed parsers, and one for the endpoints of ``RUNNER_MODEL_ENDPOINTS``."""
    named = model_endpoints()
    own = (NamedEndpoints(named),) if named else ()
    return (*(point.load() for point in entry_points(group=GROUP)), *own)
