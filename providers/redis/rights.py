"""What a script asks the server before its first write: whether its user may do all that it consists of."""

import re
from collections.abc import Collection, Sequence

NEEDS = re.compile(r"\bneeds(?:_all|_on)?\(([^)]*)\)")

PRELUDE = (
    "local may,any=redis.acl_check_cmd,PROBE "
    "local function deny(key,...) for _,one in ipairs({...}) do if not may(one,key,key) then "
    """error({err="NOPERM This user has no permissions to run the '"..string.lower(one).."' command"..("""
    """may(one,KEYS[1],KEYS[1]) and " on all keys "..string.gsub(key,"\\1","*") or "")}) end end end"""
)
_OF_TWO_KEYS = ("COPY", "RENAME")
"""A command is asked about with as many keys as it must have. For a user who may not use all keys Valkey looks for
them, and crashes where one is not given. Each argument of a question is a tenth of its time, or more."""

_OF_QUEUES = ("LPUSH", "LSET", "RPOP")
"""Commands for queues alone, whose names do not begin as a script's other keys do: they are asked about where the queue
is known."""


def prelude(keys: Sequence[str]) -> str:
    """What questions call, for a script with these keys."""
    return PRELUDE.replace("PROBE", _anyone(keys))


def with_questions(text: str, *, keys: Sequence[str], commands: Collection[str], tries: bool) -> str:
    """The text in which the script is refused before its first write, where its user may not do all after it.

    ``commands`` are those of the script. ``tries``: whether it goes over a refusal for one of many queues.
    """

    def question(needs: re.Match[str]) -> str:
        key, named = "any", re.findall(r'"(\w+)"', needs[1])
        if needs[0].startswith("needs_on("):
            key, named = needs[1].partition(",")[0], [one for one in named if one in commands]
        elif not named:
            named = [one for one in commands if tries or list(keys) == ["queue"] or one not in _OF_QUEUES]
        asked = (f'may("{one}",{key}{f",{key}" if one in _OF_TWO_KEYS else ""})' for one in named)
        denied = ",".join(f'"{one}"' for one in named)
        return f"if not({' and '.join(asked)}) then deny({key},{denied}) end" if named else ""

    return NEEDS.sub(question, text)


def _anyone(keys: Sequence[str]) -> str:
    """A key that is never made, and which begins as all do that a script with these keys uses, queues aside.

    A pattern that matches it ends in a star, and matches all of those: one question about it is one about each of them.
    """
    for whole, mark in (("home", ":"), ("run", ""), ("branch", "")):
        if whole in keys:
            return f'{whole}.."{mark}\\1"'
    return "KEYS[1]" if len(keys) == 1 else 'string.match(KEYS[1],"^[^}]*}:").."\\1"'
