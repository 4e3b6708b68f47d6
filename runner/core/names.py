"""What a name may be: it is stored as UTF-8, and has one line in every list."""

from runner.core.plain_text import printable


def why_not(name: str, *, most: int | None = None) -> str:
    """Why a name is not taken, of at most so many bytes; "" if it is."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "contains half of a surrogate pair, which is not valid UTF-8"
    if printable(name) != name or "\t" in name or name.splitlines() not in ([], [name]):
        return "has control characters: leave them out"
    if most is not None and size > most:
        return f"has {size} bytes: at most {most} are allowed"
    return ""
