"""Fits a conversation into a model's context window. Pure, so a replay sends the same messages.

Text is left out of the request, not of the conversation: first the middles of long tool results, the oldest first, then
of other long texts. The system message and the latest message stay whole as long as possible.
"""

import json
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

SHARE = 0.85
"""How much of a window is used: tokens are counted by a rule of thumb, and the answer needs room."""

_PER_TOKEN = 4  #: characters
_KEEP = 400  #: characters of a shortened text, at least


def tokens(messages: Sequence[Message], tools: Sequence[Any] = ()) -> int:
    """Estimate the number of tokens of these messages."""
    return len(json.dumps([list(messages), list(tools)], ensure_ascii=False, default=str)) // _PER_TOKEN


def fit(messages: Sequence[Message], limit: int, tools: Sequence[Any] = ()) -> list[Message]:
    """Return the messages, shortened to at most ``limit`` tokens if that is possible."""
    fitted = [dict(message) for message in messages]
    over = (tokens(fitted, tools) - limit) * _PER_TOKEN
    for at in _order(fitted):
        if over <= 0:
            break
        content = fitted[at].get("content")
        if not isinstance(content, str) or len(content) <= _KEEP:
            continue
        short = _shortened(content, max(_KEEP, len(content) - over - 60))
        over -= len(content) - len(short)
        fitted[at]["content"] = short
    return fitted


def _order(messages: Sequence[Message]) -> list[int]:
    """The order in which messages are shortened: tool results, other messages, the agent's first instructions."""
    last = len(messages) - 1
    ranks = {"tool": 0, "assistant": 1, "user": 2, "system": 4}
    return sorted(range(len(messages)), key=lambda i: (3 if i == last else ranks.get(messages[i]["role"], 2), i))


def _shortened(text: str, length: int) -> str:
    head = length * 2 // 3
    tail = length - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[-tail:]}" if left_out > 0 else text
