"""Refuses passwords in the URLs of package indexes, because environments are stored."""

import re

from runner.core.errors import BadCrew

_LOGIN = re.compile(r"https?://([^\s/@'\"]+)@")
_VARIABLE = re.compile(r"(?:[^:@]*:)?\$\{\w+\}")


def refuse_login(name: str, text: str) -> None:
    """Raise `BadCrew` for a URL with a password in it. One that stands as ``${NAME}`` is read on workers."""
    for found in _LOGIN.finditer(text):
        if not _VARIABLE.fullmatch(found[1]):
            raise BadCrew(
                f"{name}: a URL in it has a password or a token, which would be stored; take it out and give it to the "
                "workers: UV_INDEX_URL, UV_INDEX_<NAME>_USERNAME and _PASSWORD, or ${NAME} in the URL"
            )
