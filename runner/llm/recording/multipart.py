"""Requests in parts, as forms with files are sent: what they ask, whatever their boundary. Pure.

A client makes the boundary up at random, and a file that was made for the request has another name in each process.
"""

import re
from collections.abc import Iterator

_BOUNDARY = re.compile(rb"--([^\r\n]{1,70})\r\n")
_FILE = re.compile(rb"(;\s*filename\*?=)(\"[^\"\r\n]*\"|[^;\r\n]*)", re.IGNORECASE)
_NAME = re.compile(rb";\s*name=\"?([^\";\r\n]*)\"?", re.IGNORECASE)


def is_one(body: bytes) -> bool:
    """Whether a body is such a request."""
    return (found := _BOUNDARY.match(body)) is not None and b"--%b--" % found[1] in body[-80:]


def comparable(body: bytes) -> bytes:
    """The request with no boundary, and of the names of its files only how they end."""
    parts = ((_FILE.sub(_ending, head), said) for head, said in _parts(body))
    return b"".join(b"%d %b\n%d %b\n" % (len(head), head, len(said), said) for head, said in parts)


def _ending(file: re.Match[bytes]) -> bytes:
    name: bytes = file[2].strip(b'"')
    _, dot, ending = name.rpartition(b".")
    return file[1] + dot + ending if dot else file[1]


def field(body: bytes, name: str) -> str | None:
    """What the field of this name says; None if there is none."""
    for head, said in _parts(body):
        found = _NAME.search(head)
        if found is not None and found[1] == name.encode() and _FILE.search(head) is None:
            return said.decode("utf-8", "replace")
    return None


def _parts(body: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The head and the content of each part."""
    found = _BOUNDARY.match(body)
    for part in body.split(b"--" + found[1])[1:-1] if found is not None else ():
        head, _, said = part.partition(b"\r\n\r\n")
        yield head, said.removesuffix(b"\r\n")
