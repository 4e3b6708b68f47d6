"""Ids that link one part of a request with another: a result with the use of a tool, a prompt with its cache. Pure.

Which id it is does not matter to what is asked. Many clients make one up at random where an answer has none (Google's,
a text), so what a recorded answer leads to has another id in each process: requests are compared by what is linked.
"""

import re

_MEMBERS = frozenset({b"tool_call_id", b"call_id", b"tool_use_id", b"toolUseId", b"prompt_cache_key"})
_OBJECTS = frozenset({b"functionResponse", b"function_response"})  #: Google's, with an ``id``
#: As smolagents tells its model.
_IN_TEXT = re.compile(rb"\{'id': '([\w:-]{16,200})', 'type': 'function'|Call id: ([\w:-]{16,200})")
_NAMES = _MEMBERS | _OBJECTS
_ID = re.compile(rb"(?<![\w:-])[\w:-]{16,200}")  #: a shorter one is not numbered: it may be a word of what is asked


def numbered(body: bytes) -> bytes:
    """A request with these ids numbered in their order, wherever they stand; the same object if it has none."""
    parts = body.split(b'"')  # what JSON has in quotes, and between
    in_text = b"'type': 'function'" in body or b"Call id: " in body
    if not in_text and _NAMES.isdisjoint(parts):
        return body
    found = [_id_at(parts, at) for at, part in enumerate(parts) if part in _NAMES]
    if in_text:
        found += [said[1] or said[2] for said in _IN_TEXT.finditer(body)]
    ids = {one: b"link %d" % number for number, one in enumerate(dict.fromkeys(found)) if _ID.fullmatch(one)}
    if not ids:
        return body
    if in_text:
        return _ID.sub(lambda word: ids.get(word[0], word[0]), body)
    return b'"'.join(map(ids.get, parts, parts))


def _id_at(parts: list[bytes], at: int) -> bytes:
    """The id that the member of this name holds; "" for none."""
    if len(parts) < at + 4:
        return b""
    holds = parts[at + 1].strip()
    if parts[at] in _MEMBERS:
        return parts[at + 2] if holds == b":" else b""
    while holds in (b":{", b": {", b",") and len(parts) > at + 4:  # the object's members, as far as they are texts
        if parts[at + 3].strip() != b":":
            return b""
        if parts[at + 2] == b"id":
            return parts[at + 4]
        at += 4
        holds = parts[at + 1].strip() if len(parts) > at + 1 else b""
    return b""
