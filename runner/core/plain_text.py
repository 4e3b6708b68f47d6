"""Removes control characters from text before a terminal shows it: stored text is not trusted."""

import json
import re
from typing import Any

#: All controls but newline and tab, what turns the direction of text around, and halves of characters.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: As spoken: no "user" or "European", but what is spelt letter by letter, as "LLM" or "HTTPError".
_BEGINS_WITH_A_VOWEL = re.compile(r"_*(?:[AEFHILMNORSX](?=[A-Z0-9])|[AaIi]|[Ee](?!u)|[Oo](?!ne)|[Uu](?!ni|se|[A-Z]))")
_IN_JSON = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with each control character escaped, as in ``\x1b``; newlines and tabs stay."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def bare(text: str) -> str:
    """Return the text without control characters, to compute its width."""
    return _OBEYED.sub("", text)


def json_text(data: Any) -> str:
    """Return JSON on one line, with control characters escaped."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(data, ensure_ascii=False))


def with_article(name: str) -> str:
    """Return a name with its article, by how it is spoken: "an Agent", "a User", "an LLM"."""
    return f"{'an' if _BEGINS_WITH_A_VOWEL.match(name) else 'a'} {name}"


def of_class(value: object) -> str:
    """Return the name of the value's class with its article, for a sentence: "an Agent"."""
    return with_article(type(value).__qualname__)


def why_no_name(name: str, *, most: int | None = None) -> str:
    """Return why a name is invalid; "" if it is valid: UTF-8, at most so many bytes, and printable on one line."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not valid UTF-8"
    if printable(name) != name or "\t" in name or name.splitlines() not in ([], [name]):
        return "has control characters: leave them out"
    if most is not None and size > most:
        return f"has {size} bytes: at most {most} are allowed"
    return ""
