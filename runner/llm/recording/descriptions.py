"""Descriptions of tools and their arguments, as a request has them, by which two requests are compared. Pure.

They come of docstrings, of which Python 3.13 and later strip the indentation when they compile them: a client that
sends a docstring as it is makes another request there, of which nothing but white space differs.
"""

import re

_MEMBER = re.compile(rb'"description"\s*:\s*"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_INDENTATION = re.compile(rb"(?<=\\n)(?: |\\t)+")


def without_indentation(body: bytes) -> bytes:
    """A request of which no line of a description is indented; the same object if there was none."""
    found = _MEMBER.sub(_dedented, body)
    return body if found == body else found


def _dedented(member: re.Match[bytes]) -> bytes:
    return _INDENTATION.sub(b"", member[0])
