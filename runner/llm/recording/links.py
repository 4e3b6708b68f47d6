"""Ids that link one part of a request with another: a result with the use of a tool, a prompt with its cache. Pure.

Which id it is does not matter to what is asked. Many clients make one up at random where an answer has none (Google's,
a text), so what a recorded answer leads to has another id in each process: requests are compared by what is linked.
"""

import re
from collections.abc import Iterator

#: The names of members that hold one, or an object with an ``id``, as Google's.
_NAMED = re.compile(
    rb'"(?:(tool_call_id|call_id|tool_use_id|toolUseId|prompt_cache_key)|functionResponse|function_response)(?=")'
)
_TEXT = re.compile(rb'"\s*:\s*"([^"]*)"')  #: what a member holds, from the end of its name on, if that is a text
#: One of these stands in each request in which `numbered` finds an id.
_SIGNS = (
    *(b'_id"', b'toolUseId"', b'prompt_cache_key"', b'functionResponse"', b'function_response"'),
    *(b"'type': 'function'", b"Call id: "),
)
#: As smolagents tells its model.
_IN_TEXT = re.compile(rb"\{'id': '([\w:-]{16,200})', 'type': 'function'|Call id: ([\w:-]{16,200})")
_ID = re.compile(rb"(?<![\w:-])[\w:-]{16,200}")  #: a shorter one is not numbered: it may be a word of what is asked


def numbered(body: bytes) -> bytes:
    """A request with these ids numbered in their order, wherever they stand; the same object if it has none."""
    for sign in _SIGNS:
        if sign in body:
            break
    else:  # most first requests of a conversation: to look for a name costs ten times as much
        return body
    found = list[bytes]()
    for name in _NAMED.finditer(body):
        found.append(_id_after(name, body))
    if in_text := b"'type': 'function'" in body or b"Call id: " in body:
        found += [said[1] or said[2] for said in _IN_TEXT.finditer(body)]
    if not found:
        return body
    ids = {one: b"link %d" % number for number, one in enumerate(dict.fromkeys(found)) if _ID.fullmatch(one)}
    if not ids:
        return body
    if in_text:
        return _ID.sub(lambda word: ids.get(word[0], word[0]), body)
    return _replaced(body, ids)


def _id_after(name: re.Match[bytes], body: bytes) -> bytes:
    """The id that the member of this name holds; "" for none."""
    if name[1] is None:
        return _id_of_object(_parts(body, name.end() + 1))
    holds = _TEXT.match(body, name.end())
    return holds[1] if holds else b""


def _replaced(body: bytes, ids: dict[bytes, bytes]) -> bytes:
    """The request with other texts for those in quotes. It is not taken apart: a long one has few of them."""
    first, last = min(ids), max(ids)
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    begins = b'"' + first[:alike]  # as most of one client do
    pieces, done, at = list[bytes](), 0, body.find(begins)
    while at >= 0:
        end = body.find(b'"', at + 1)
        if (other := ids.get(body[at + 1 : end])) is not None and end > 0:
            pieces += (body[done : at + 1], other)
            done = end
        at = body.find(begins, at + 1)
    return b"".join((*pieces, body[done:]))


def _parts(body: bytes, at: int) -> Iterator[bytes]:
    """What JSON has in quotes, and between, from there on."""
    while (end := body.find(b'"', at)) >= 0:
        yield body[at:end]
        at = end + 1
    yield body[at:]


def _id_of_object(parts: Iterator[bytes]) -> bytes:
    """That of the object's members, as far as they are texts."""
    while next(parts, b"").strip() in (b":{", b": {", b","):
        name, colon, value = next(parts, b""), next(parts, b""), next(parts, b"")
        if colon.strip() != b":":
            return b""
        if name == b"id":
            return value
    return b""
