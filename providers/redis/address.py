"""Where a Redis is, as URLs say it.

``redis://USER:PASSWORD@HOST:PORT/DB``, with TLS ``rediss://``; the same as ``valkey://`` and ``valkeys://``; and
``unix://PATH``. Behind Sentinel ``redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB``, with TLS
``rediss+sentinel://``: the hosts are the sentinels', user and password the server's; the sentinels' own are
``?sentinel_username=`` and ``?sentinel_password=``. What TLS needs stands in the query: ``ssl_ca_certs``,
``ssl_certfile``, ``ssl_keyfile``.

Several servers are several URLs with commas between them.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from runner.core.errors import UsageError
from runner.core.redaction import redact_url

SENTINEL_PORT = 26379

_HINT = "It is redis://USER:PASSWORD@HOST:PORT/DB; a / # ? : or @ in the password is written %2F %23 %3F %3A %40."
_SENTINEL_HINT = (
    "It is redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB, of the sentinels, and the master's name."
)

_SAME = {
    "valkey": "redis",
    "valkeys": "rediss",
    "valkey+sentinel": "redis+sentinel",
    "valkeys+sentinel": "rediss+sentinel",
}
_TLS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_min_version",
    "ssl_ciphers",
)
_OF_A_SERVER = ("db", "username", "password")
_OF_CONNECTIONS = ("client_name", "health_check_interval", "protocol", "socket_timeout")
_OF_SOCKETS = ("socket_connect_timeout", "socket_keepalive")
_BETWEEN = re.compile(r",\s*(?=[a-z+]+://)")  # between sentinels there are commas, too
_OF_SENTINELS = {"sentinel_username": "username", "sentinel_password": "password"}


@dataclass(frozen=True, slots=True)
class Watched:
    """A server behind sentinels: whichever is the master of that name. ``options`` are those of TLS, for both."""

    sentinels: tuple[tuple[str, int], ...]
    name: str
    db: int
    login: dict[str, str]
    sentinel_login: dict[str, str]
    options: dict[str, Any]


def several(urls: str) -> tuple[str, ...]:
    """The URLs in a text that has commas between them. Raises `UsageError` if two of them are the same."""
    found = tuple(_BETWEEN.split(urls)) if "," in urls else (urls,)
    if len(set(found)) < len(found):
        raise UsageError(f"{redact_url(urls)} names a server twice")
    return found


def standard(url: str) -> str:
    """The URL with the names that redis-py and kombu know. Raises `UsageError` for what is none, by its looks."""
    given = url
    scheme, mark, rest = url.partition("://")
    name, plus, sentinel = scheme.partition("+")
    url = _SAME.get(name, name) + plus + sentinel + mark + rest
    try:
        parts = urlsplit(url)
        port = plus or parts.port
    except ValueError:
        raise refused(given) from None
    if not url.isprintable() or port == 0:
        raise refused(given)
    if "@" in rest and "@" not in parts.netloc:
        raise UsageError(f"{redact_url(given)} is not a Redis URL: its password ends it early. {_HINT}")
    if mark and not plus and name != "unix" and not re.fullmatch(r"/?|/\d+", parts.path):
        raise refused(given)  # or it would be another database, in silence
    for option, _ in parse_qsl(parts.query):
        known = _known(parts.scheme)
        if option not in (*known, *_TLS):
            raise UsageError(
                f"{redact_url(given)} is not a Redis URL: unknown option {option}; known: {', '.join(known)}"
            )
        if option in _TLS and not parts.scheme.startswith("rediss"):
            raise UsageError(f"{redact_url(given)} has {option} and is not encrypted: write rediss:// or valkeys://")
    return url


def _known(scheme: str) -> tuple[str, ...]:
    """The options that a URL's query may have."""
    if scheme.endswith("+sentinel"):
        return (*_OF_SENTINELS, *(_TLS if scheme.startswith("rediss") else ()))
    known = _OF_A_SERVER + _OF_CONNECTIONS
    if scheme == "unix":
        return known
    return known + _OF_SOCKETS + (_TLS if scheme == "rediss" else ())


def for_kombu(url: str) -> str:
    """A URL as kombu takes it, whose query may say nothing but TLS, and of a unix socket the database."""
    parts = urlsplit(url)
    asked = dict(parse_qsl(parts.query))
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    user = user or quote(asked.get("username", ""), safe="")
    password = password or quote(asked.get("password", ""), safe="")
    at = f"{user}:{password}@" if user or password else ""
    query = {name: value for name, value in asked.items() if name in _TLS}
    path = parts.path
    if parts.scheme == "unix":
        query |= {"virtual_host": asked["db"]} if "db" in asked else {}
    elif "db" in asked:
        path = f"/{asked['db']}"
    scheme = "redis+socket" if parts.scheme == "unix" else parts.scheme
    return f"{scheme}://{at}{host}{path}" + (f"?{urlencode(query, safe='/')}" if query else "")


def identity(url: str) -> str:
    """Which store a URL leads to, for names of folders and files: without user and password, which may change.

    Two spellings of one address are one store; two names of one machine are not known to be. Raises `UsageError`.
    """
    url = standard(url)
    parts = urlsplit(url)
    if (found := watched(url)) is not None:
        hosts = ",".join(sorted(f"{host.lower()}:{port}" for host, port in found.sentinels))
        return f"{hosts}/{found.name}/{found.db}"
    db = dict(parse_qsl(parts.query)).get("db") or ("" if parts.scheme == "unix" else parts.path.strip("/")) or "0"
    where = parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    return f"{where}/{int(db) if db.isdigit() else db}"


def refused(url: str, why: str = "its host, port or database cannot be read") -> UsageError:
    """What is said of a URL that is none."""
    return UsageError(f"{redact_url(url)} is not a Redis URL: {why}. {_HINT}")


def watched(url: str) -> Watched | None:
    """What a URL of sentinels says; None for any other. Raises `UsageError`."""
    if not url.partition("://")[0].endswith("+sentinel"):
        return None
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    path = re.fullmatch(r"/([^/]+)(?:/(\d*))?", parts.path)
    ports = [re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", host) for host in hosts.split(",")]
    if not path or not all(ports) or parts.scheme not in ("redis+sentinel", "rediss+sentinel"):
        why = "a host, a port, the master's name or the database cannot be read"
        raise UsageError(f"{redact_url(url)} is not a Redis URL: {why}. {_SENTINEL_HINT}")
    options: dict[str, Any] = {"ssl": True} if parts.scheme.startswith("rediss") else {}
    sentinel_login = {}
    for name, value in parse_qsl(parts.query):
        if name in _OF_SENTINELS:
            sentinel_login[_OF_SENTINELS[name]] = value
        else:
            options[name] = value.lower() in ("1", "true", "yes") if name == "ssl_check_hostname" else value
    user, _, password = login.partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return Watched(
        tuple((found[1].strip("[]"), int(found[2] or SENTINEL_PORT)) for found in ports if found),
        unquote(path[1]),
        int(path[2] or 0),
        {name: value for name, value in given.items() if value},
        sentinel_login,
        options,
    )
