"""Marks in a prompt, by which its service keeps it: what is asked again costs a tenth (Anthropic's prompt caching).

What is written to the cache costs a quarter more, so only a conversation that will continue is marked. The marks are no
part of what is asked: a call is known in its journal by the request without them.
"""

import re
from contextvars import ContextVar
from typing import Any

from runner.core.context_value import ContextValue

MARK = {"type": "ephemeral"}

_made: ContextVar[bool] = ContextVar("runner_marks", default=False)
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_MARK = rb',\s*"cache_control":\s*\{"type":\s*"ephemeral"\}'
_SYSTEM = re.compile(
    rb'("system":\s*)\[\{"type":\s*"text",\s*"text":\s*(' + _TEXT + rb")" + _MARK + rb"\}\]", re.DOTALL
)
_ANY = re.compile(_MARK)


def mark(body: dict[str, Any]) -> None:
    """Mark a request in Anthropic's form: what all conversations of an agent begin with, and how far this one is."""
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
    """What is asked in here is marked by us: those who know a call by its request look at it `without` the marks."""
    return ContextValue(_made, True)


def without(body: bytes) -> bytes:
    """A request as it was before it was marked, byte for byte; one that we did not mark as it is."""
    return _ANY.sub(b"", _SYSTEM.sub(rb"\1\2", body)) if _made.get() else body
