"""Parses and validates the URLs of a Redis, of sentinels and of a cluster.

``redis://USER:PASSWORD@HOST:PORT/DB``, with TLS ``rediss://``; the same as ``valkey://`` and ``valkeys://``; and
``unix://PATH``. Behind Sentinel ``redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB``, with TLS
``rediss+sentinel://``: the hosts are the sentinels', user and password the server's; the sentinels' own are
``?sentinel_username=`` and ``?sentinel_password=``. A Redis Cluster is
``redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT``, with TLS ``rediss+cluster://``: the hosts are some of its nodes.
What TLS needs stands in the query: ``ssl_ca_certs``,
``ssl_certfile``, ``ssl_keyfile``.

Several servers are several URLs with commas between them.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from runner.core.errors import UsageError
from runner.core.redaction import redact_url

SENTINEL_PORT = 26379
CLUSTER_PORT = 6379

_HINT = "It is redis://USER:PASSWORD@HOST:PORT/DB; a / # ? : or @ in the password is written %2F %23 %3F %3A %40."
SCHEMES = (
    "it begins with none of redis://, rediss://, valkey://, valkeys://, unix://, redis+sentinel:// and redis+cluster://"
)
_SENTINEL_HINT = (
    "It is redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB, of the sentinels, and the master's name."
)
_CLUSTER_HINT = "It is redis+cluster://USER:PASSWORD@HOST:PORT,HOST:PORT, of some of its nodes; its database is 0."

_SAME = {"valkey": "redis", "valkeys": "rediss"}
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
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_OF_A_SERVER = ("db", "username", "password")
_OF_CONNECTIONS = ("client_name", "health_check_interval", "protocol", "socket_timeout")
_OF_SOCKETS = ("socket_connect_timeout", "socket_keepalive")
_BETWEEN = re.compile(r",\s*(?=[a-z+]+://)")  # between sentinels there are commas, too
_OF_A_CLUSTER = ("partitions", "tag")  #: how many it is to have; of which of them this is the URL
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


@dataclass(frozen=True, slots=True)
class Clustered:
    """A Redis Cluster, known by some of its ``nodes``.

    ``tag`` decides the slot of one partition, "" for all of them. ``partitions`` is how many it is to have, 0 for one
    on each master. ``options`` are those of TLS.
    """

    nodes: tuple[tuple[str, int], ...]
    tag: str
    partitions: int
    login: dict[str, str]
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
    """Return the options that a URL's query may have."""
    if "+" in scheme:
        of = _OF_A_CLUSTER if scheme.endswith("+cluster") else _OF_SENTINELS
        return (*of, *(_TLS if scheme.startswith("rediss") else ()))
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
    """Return a name of the store that a URL leads to, for files and folders. Raises `UsageError`.

    It has neither user nor password, which may change. Two spellings of one address are one store; two names of one
    machine are not known to be.
    """
    url = standard(url)
    parts = urlsplit(url)
    if (found := watched(url)) is not None:
        hosts = ",".join(sorted(f"{host.lower()}:{port}" for host, port in found.sentinels))
        return f"{hosts}/{found.name}/{found.db}"
    if (cluster := clustered(url)) is not None:
        return ",".join(sorted(f"{host.lower()}:{port}" for host, port in cluster.nodes)) + f"/{cluster.tag}"
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
    login, hosts = _login(parts.netloc), _hosts(parts.netloc, SENTINEL_PORT)
    path = re.fullmatch(r"/([^/]+)(?:/(\d*))?", parts.path)
    if not path or not hosts or parts.scheme not in ("redis+sentinel", "rediss+sentinel"):
        why = "a host, a port, the master's name or the database cannot be read"
        raise UsageError(f"{redact_url(url)} is not a Redis URL: {why}. {_SENTINEL_HINT}")
    options = _options(parts, _OF_SENTINELS)
    sentinel_login = {_OF_SENTINELS[name]: value for name, value in parse_qsl(parts.query) if name in _OF_SENTINELS}
    return Watched(hosts, unquote(path[1]), int(path[2] or 0), login, sentinel_login, options)


def tls_options(url: str) -> dict[str, Any]:
    """Return what the URL of one server says of TLS, for a client that takes no such URL; empty without TLS."""
    found = _options(urlsplit(url), ()) if url.startswith("rediss://") else {}
    return {name: value for name, value in found.items() if name in _TLS}


def encrypted(url: str) -> bool:
    """Whether a URL asks for TLS."""
    return standard(url).startswith("rediss")


def tls_files(url: str) -> list[tuple[str, str]]:
    """Return the options of a URL that name files or folders, and what they name."""
    return [(name, path) for name, path in parse_qsl(urlsplit(url).query) if name in _FILES]


def clustered(url: str) -> Clustered | None:
    """What a URL of a Redis Cluster says; None for any other. Raises `UsageError`."""
    if not url.partition("://")[0].endswith("+cluster"):
        return None
    parts = urlsplit(url)
    hosts, asked = _hosts(parts.netloc, CLUSTER_PORT), dict(parse_qsl(parts.query))
    many = asked.get("partitions", "0")
    known = parts.scheme in ("redis+cluster", "rediss+cluster") and parts.path in ("", "/", "/0")
    if not known or not hosts or not re.fullmatch(r"\d{1,3}", many):
        why = "a host, a port, the database or the number of partitions cannot be read"
        raise UsageError(f"{redact_url(url)} is not a Redis URL: {why}. {_CLUSTER_HINT}")
    options = _options(parts, _OF_A_CLUSTER)
    return Clustered(hosts, asked.get("tag", ""), int(many), _login(parts.netloc), options)


def tagged(url: str, tag: str) -> str:
    """The URL of one partition of a Redis Cluster: of the keys whose slot this tag decides; any other, as it is."""
    if not url.partition("://")[0].endswith("+cluster"):
        return url
    address, _, query = url.partition("?")
    asked = [(name, value) for name, value in parse_qsl(query) if name not in _OF_A_CLUSTER]
    if tag:
        asked.append(("tag", tag))
    return address + (f"?{urlencode(asked, safe='/')}" if asked else "")


def _hosts(netloc: str, port: int) -> tuple[tuple[str, int], ...]:
    """Hosts and ports; none where one cannot be read."""
    hosts = netloc.rpartition("@")[2].split(",")
    found = [re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", host) for host in hosts]
    return tuple((one[1].strip("[]"), int(one[2] or port)) for one in found if one) if all(found) else ()


def _login(netloc: str) -> dict[str, str]:
    user, _, password = netloc.rpartition("@")[0].partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return {name: value for name, value in given.items() if value}


def _options(parts: SplitResult, own: Collection[str]) -> dict[str, Any]:
    """Return the options of TLS."""
    found: dict[str, Any] = {"ssl": True} if parts.scheme.startswith("rediss") else {}
    for name, value in parse_qsl(parts.query):
        if name not in own:
            found[name] = value.lower() in ("1", "true", "yes") if name == "ssl_check_hostname" else value
    return found
