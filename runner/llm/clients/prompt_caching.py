"""Marks prompts for the service's cache: the cached part of a prompt costs a tenth (Anthropic's prompt caching).

Writing to the cache costs a quarter more, so only conversations that will continue are marked. The marks are not
part of a call's identity: the journal identifies it by the request without them.
"""

import re
from contextvars import ContextVar
from typing import Any

from runner.core.context_value import ContextValue

MARK = {"type": "ephemeral"}

marked: ContextVar[bool] = ContextVar("runner_marks", default=False)
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_MARK = rb',\s*"cache_control":\s*\{"type":\s*"ephemeral"\}'
_SYSTEM = re.compile(
    rb'("system":\s*)\[\{"type":\s*"text",\s*"text":\s*(' + _TEXT + rb")" + _MARK + rb"\}\]", re.DOTALL
)
_ANY = re.compile(_MARK)


def mark(body: dict[str, Any]) -> None:
    """Mark a request in Anthropic's form: the common start of an agent's conversations, and the end of this one."""
    turns, tools, system = body["messages"], body.get("tools"), body.get("system")
    if not (tools or len(turns) > 1) or "cache_control" in body:
        return
    if isinstance(system, str):
        body["system"] = [
            {"type": "text", "text": system, "cache_control": MARK}
        ]  # with the tools, which come before it
    elif tools and not system:
        tools[-1] = {**tools[-1], "cache_control": MARK}
    asked = [turn for turn in turns if turn["role"] == "user"]
    for turn in asked[-2:]:  # where the request before this one ended, too: there it is surely found
        turn["content"][-1] = {**turn["content"][-1], "cache_control": MARK}


def made() -> ContextValue[bool]:
    """Note that requests in here are marked by us: the recording identifies them `without` the marks."""
    return ContextValue(marked, True)


def without(body: bytes) -> bytes:
    """Return a request as it was before it was marked, byte for byte; requests that we did not mark are unchanged."""
    return _ANY.sub(b"", _SYSTEM.sub(rb"\1\2", body)) if marked.get() else body
