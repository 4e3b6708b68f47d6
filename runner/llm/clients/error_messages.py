"""Turns the errors of model services into one line without keys."""

import contextlib
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

from runner.core.errors import ContextTooLong, ModelError
from runner.core.redaction import redact
from runner.llm.clients.model_names import Target

WAITED = 120.0
"""Seconds that a call waits at most because its service says so: as OpenAI's client has it; Anthropic's has none."""

_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum context|too many tokens|prompt is too long|too large for model"
    r"|exceed_context|input is too long",
    re.IGNORECASE,
)


class Unreadable(Exception):
    """The answer is unusable: cut off, or not JSON. The request can be repeated."""


def format_failure(error: BaseException, target: Target, tries: int) -> ModelError:
    """Turn an error of a vendor's client into a `ModelError` that names the model and its address, and never a key."""
    # LiteLLM gives one that never arrived a status of its own making.
    status = None if type(error).__name__ == "APIConnectionError" else getattr(error, "status_code", None)
    text = _said(error, target.api_key)
    who = f"the model {target.model!r} at {target.place}"
    times = f", in up to {tries} tries" if tries > 1 else ""
    if status in (400, 413, 422) and _TOO_LONG.search(text):
        return ContextTooLong(f"{who} accepts less input than it was sent: {text}")
    if isinstance(status, int):
        if wait := longer_than_waited(error):  # the clients do not try again then
            return ModelError(f"{who} refused: {status}: {text}{wait}")
        return ModelError(f"{who} refused{times}: {status}: {text}{_HINTS.get(status, '')}")
    if isinstance(error, Unreadable):
        return ModelError(f"{who} gave an unreadable answer{times}: {text}")
    kind = type(error).__name__
    if "Timeout" in kind:
        return ModelError(f"{who} did not answer in time{times}; raise LLM(timeout=...)")
    if "Connection" in kind or "Connect" in kind or isinstance(error, OSError):
        return ModelError(f"{who} cannot be reached{times}: {text}")
    return ModelError(f"{who} could not be called: {kind}: {text}")


def longer_than_waited(error: BaseException) -> str:
    """Return a message if the service asks for a longer pause than calls wait; else ""."""
    seconds = asked_to_wait(error)
    if seconds <= WAITED:
        return ""
    return f"; it asks to wait {seconds:.0f} s (Retry-After), longer than calls wait: resume after that"


def asked_to_wait(error: BaseException) -> float:
    """Return the pause in seconds that a service asked for when it refused a call; 0 if it gave none."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        said: Any = headers.get("retry-after")
        said = said or (getattr(error, "litellm_response_headers", None) or {}).get("retry-after")
        try:
            return max(float(said), 0.0)
        except ValueError:
            return max(parsedate_to_datetime(said).timestamp() - time.time(), 0.0)
    return 0.0


_HINTS = {
    401: " (is the key right, in the environment of the workers?)",
    404: " (is the model's name right, and the base_url?)",
}


def _said(error: BaseException, key: str | None) -> str:
    body: Any = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    said = inner.get("message") if isinstance(inner, dict) else None
    text = said or getattr(error, "message", None) or str(error) or type(error).__name__
    cause = error.__cause__
    if not said and cause is not None and str(cause) and str(cause) not in str(text):
        text = f"{text} ({cause})"
    return redact(" ".join(str(text).split()), key)[:300]
