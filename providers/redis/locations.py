"""Locations of checkpoints in Redis: ``redis://user:password@host:port/db?prefix=NAME``, one of them ``LOCATION#ID``.

What is given back, stored or shown never has the password. It is remembered in this process for each server, so that
what was given back can be given again; in another process, ``RUNNER_REDIS_URL`` has it, or the location that is given.
Of several servers there, the first has the locations that name none.
"""

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from runner.core.errors import UsageError
from runner.core.settings import setting
from runner.providers.base import REDIS_SCHEMES as SCHEMES
from runner.providers.base import CheckpointNotFound
from runner.providers.redis import keys
from runner.providers.redis.address import several, tagged

DEFAULT_PREFIX = "checkpoints"

_known: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class RedisLocation:
    """Where states are. ``url`` opens the server; ``shown`` is the location for people, without the password."""

    url: str
    prefix: str
    shown: str

    @property
    def home(self) -> str:
        """What the keys begin with. The prefix is part of the slot's name, so braces in it would break that."""
        return keys.state_home(_in_key(self.prefix))


def parse_location(location: str, default_url: str | None = None) -> RedisLocation:
    """The place that a location means. What is no URL is a prefix at ``default_url``, else at ``RUNNER_REDIS_URL``."""
    if location.startswith(SCHEMES):
        url, prefix = _take_prefix(location)
    else:
        found = default_url or setting("RUNNER_REDIS_URL")
        if not found:
            raise UsageError(
                f"No Redis for {location!r}: give a location like redis://host:6379/0?prefix=NAME, "
                "or set RUNNER_REDIS_URL"
            )
        url, prefix = _take_prefix(several(found)[0])[0], location.removeprefix("./")
    url = tagged(url, "")
    if not prefix or "\0" in prefix:
        raise UsageError(f"Not a prefix for keys: {prefix!r}")
    bare = _bare(url)
    if url == bare:
        url = _known.get(bare) or _from_environment(bare) or url
    else:
        _known[bare] = url
    url = tagged(url, keys.state_tag(_in_key(prefix)))
    return RedisLocation(url, prefix, f"{bare}{'&' if '?' in bare else '?'}prefix={quote(prefix, safe='/:._-~')}")


def _in_key(prefix: str) -> str:
    return quote(prefix, safe="/:._-~ ")


def split(location: str) -> tuple[str, str]:
    """A checkpoint's location as its place's and its id."""
    place, mark, checkpoint_id = location.rpartition("#")
    if not mark:
        raise CheckpointNotFound(f"Checkpoint not found: {without_password(location)} is not of the form LOCATION#ID")
    return place, checkpoint_id


def without_password(location: str) -> str:
    """Return the location without its password, as it may be shown."""
    return _bare(location) if location.startswith(SCHEMES) else location


def _from_environment(bare: str) -> str | None:
    urls = several(setting("RUNNER_REDIS_URL", ""))
    return next((url for url in urls if url and _bare(url) == bare), None)


def _take_prefix(location: str) -> tuple[str, str]:
    """The URL as Redis knows it, and our part of it. Rebuilt by hand: a socket's path is not a URL's."""
    url, _, query = location.partition("?")
    asked = parse_qsl(query, keep_blank_values=True)
    prefix = next((value for name, value in asked if name == "prefix"), DEFAULT_PREFIX)
    rest = urlencode([(name, value) for name, value in asked if name != "prefix"])
    return (f"{url}?{rest}" if rest else url), prefix


def _bare(url: str) -> str:
    """Without user and password, wherever they stand."""
    address, _, query = url.partition("?")
    scheme, _, rest = address.partition("://")
    rest = rest.rpartition("@")[2]
    asked = urlencode([(n, v) for n, v in parse_qsl(query, keep_blank_values=True) if n not in _SECRET])
    return f"{scheme}://{rest}{'?' if asked else ''}{asked}"


_SECRET = {"password", "username", "sentinel_password", "sentinel_username"}
