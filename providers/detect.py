"""Selects the provider for a location, by its form and by what is stored there."""

import re
from importlib.metadata import entry_points
from pathlib import Path

from runner.core.errors import BadCheckpoint
from runner.providers.base import REDIS_SCHEMES, BaseProvider
from runner.providers.json import JsonProvider
from runner.providers.sqlite import SqliteProvider, is_sqlite

GROUP = "crew_runner.providers"
"""The entry points that add a provider, by the scheme of its locations: each is a class, or what gives an instance."""

_SUFFIXES = {".db", ".sqlite", ".sqlite3"}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)


def detect_provider(location: str | Path) -> BaseProvider:
    """The provider of a location, or of one checkpoint: Redis for its URLs, SQLite for its files, else JSON files.

    A location with another scheme (``s3://...``) is for the provider that is installed under that name. Raises
    `BadCheckpoint` if there is none: a folder named ``s3:`` is not what was meant.
    """
    text = str(location)
    if text.startswith(REDIS_SCHEMES):
        from runner.providers.redis.provider import RedisProvider  # a crew file pays for Redis when it uses it

        return RedisProvider()
    scheme, separator, _ = text.partition("://")
    for point in entry_points(group=GROUP, name=scheme) if separator else ():
        found: BaseProvider = point.load()()
        return found
    if separator and _SCHEME.fullmatch(scheme) and not Path(scheme + ":").exists():
        raise BadCheckpoint(
            f"no provider is installed for locations that begin with {scheme}://: install the package that adds it, "
            "or give a directory, a database file or a Redis URL"
        )
    for candidate in {text, text.rpartition("#")[0]} - {""}:
        path = Path(candidate)
        try:
            if path.is_file():
                if path.suffix in _SUFFIXES or is_sqlite(path):
                    return SqliteProvider()
            elif path.suffix in _SUFFIXES and not path.is_dir():
                return SqliteProvider()
        except OSError:
            continue
    return JsonProvider()
