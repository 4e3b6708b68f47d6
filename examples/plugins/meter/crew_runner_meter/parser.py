"""The calls of a service that answers at ``/v2/ask`` and calls its model an oracle."""

import json
from typing import Any
from urllib.parse import urlsplit

from runner.core.ledger import Usage
from runner.llm.recording.parsers import CallParser


class OracleParser(CallParser):
    """A request is ``{"oracle": NAME, "question": ...}``, an answer ``{"answer": ..., "words": [IN, OUT]}``."""

    def may_be(self, method: str, url: str) -> bool:
        """By its address."""
        return method == "POST" and urlsplit(url).path == "/v2/ask"

    def model(self, url: str, body: bytes) -> str | None:
        """The oracle's name."""
        name = _read(body).get("oracle")
        return f"oracle/{name}" if isinstance(name, str) else None

    def usage(self, body: bytes) -> Usage | None:
        """Its words, as tokens."""
        words = _read(body).get("words")
        return Usage(*words) if words else None


def _read(body: bytes) -> dict[str, Any]:
    """A JSON object; an empty one for what is none: what a parser raises comes out of the request."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


ORACLE = OracleParser()
