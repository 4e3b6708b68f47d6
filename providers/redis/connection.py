"""Connections to Redis: how they are opened, and which of their errors mean "not now"."""

import random
import re
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from runner.errors import StoreUnreachable, UsageError
from runner.redaction import redact_url

NOT_NOW = (ConnectionError, TimeoutError, BusyLoadingError)
"""Errors after which the same call may succeed: every operation here may be repeated."""

REFUSED = ResponseError
"""The server answered, and said no: no permission, no memory, read-only."""

_HINT = "It is redis://USER:PASSWORD@HOST:PORT/DB; a / # ? : or @ in the password is written %2F %23 %3F %3A %40."

T = TypeVar("T")

Client: TypeAlias = Any
"""A redis-py client that decodes. Its own annotations allow bytes everywhere, which never come."""


class Line:
    """One connection of its own, for one caller at a time, on which an answer can be left for later.

    `later` sends without waiting: its answer is read, and thrown away, with the next `execute_command`. What breaks
    off in the middle (an interrupt, a lost server) closes the connection, so no answer is ever taken for another's.
    """

    def __init__(self, client: Client) -> None:
        self._connection: Any = client.connection_pool.get_connection()
        self._unread = 0
        self.fresh = True
        """Whether the server may not know our scripts: a new connection may be to a new server."""

    def later(self, *command: Any) -> None:
        """Send a command whose answer does not matter."""
        try:
            self._connection.send_command(*command)
            self._unread += 1
        except NOT_NOW:
            self.close()
        except BaseException:
            self.close()
            raise

    def execute_command(self, *command: Any) -> Any:
        """Send a command and return its answer."""
        try:
            self._connection.send_command(*command)
            while self._unread:
                self._unread -= 1
                try:
                    self._connection.read_response()
                except NoScriptError:
                    self.fresh = True
                except ResponseError:
                    pass
            return self._connection.read_response()
        except ResponseError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; the next command opens it again."""
        self._unread = 0
        self.fresh = True
        self._connection.disconnect()


def connect(
    url: str,
    *,
    name: str = "runner",
    timeout: float | None = 10.0,
    connect_timeout: float = 5.0,
    single: bool = False,
    decode: bool = True,
) -> Client:
    """A client for ``redis://``, ``rediss://`` or ``unix://``. Times are in seconds.

    Opens nothing yet, unless it is to have a ``single`` connection, of which the server can tell that it closed.
    Raises `UsageError` for what is no URL of a Redis.
    """
    if "@" in url.partition("://")[2] and "@" not in urlsplit(url).netloc:
        raise UsageError(f"{redact_url(url)} is not a Redis URL: its password ends it early. {_HINT}")
    try:
        if not url.startswith("unix:") and "://" in url and not re.fullmatch(r"/?|/\d+", urlsplit(url).path):
            raise ValueError(url)  # or it would be another database, in silence
        return Redis.from_url(
            url,
            client_name=name,
            single_connection_client=single,
            decode_responses=decode,
            encoding_errors="surrogateescape",  # outputs that are packed are no text
            socket_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            **(
                {} if url.startswith("unix:") else {"socket_connect_timeout": connect_timeout, "socket_keepalive": True}
            ),
        )
    except ValueError as error:
        why = str(error) if "scheme" in str(error) else "its host, port or database cannot be read"
        raise UsageError(f"{redact_url(url)} is not a Redis URL: {why}. {_HINT}") from None


def check(client: Client, url: str) -> None:
    """Raise `StoreUnreachable`, with the address tried, unless the server answers and lets us in."""
    try:
        client.ping()
    except (AuthenticationError, NoPermissionError) as error:
        raise StoreUnreachable(
            f"Redis at {redact_url(url)} refuses us: {_said(error)}. Check user and password in the URL."
        ) from None
    except BusyLoadingError:
        patiently(client.ping, limit=30)
    except (RedisError, OSError) as error:
        raise StoreUnreachable(
            f"Redis at {redact_url(url)} cannot be reached: {_said(error)}. Start it, or name another with --redis-url."
        ) from None
    version = server_version(client)
    if version < (7, 0):
        raise StoreUnreachable(
            f"Redis at {redact_url(url)} is {'.'.join(map(str, version))}; version 7.0 or newer is needed."
        )


def server_version(client: Client) -> tuple[int, ...]:
    """The server's Redis version; Valkey tells the one it is compatible with."""
    try:
        info = client.info("server")
    except ResponseError:  # an ACL may forbid INFO; then the scripts will tell
        return (7, 0)
    return tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])


def _said(error: Exception) -> str:
    return str(error).rstrip(". ")


def patiently(call: Callable[[], T], *, limit: float | None = None, first: float = 0.02, most: float = 1.0) -> T:
    """Repeat ``call`` while Redis is away, with jittered pauses, for ``limit`` seconds (``None``: for ever)."""
    end = None if limit is None else time.monotonic() + limit
    pause = first
    while True:
        try:
            return call()
        except NOT_NOW as error:
            if isinstance(error, AuthenticationError) or (end is not None and time.monotonic() + pause > end):
                raise
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 2, most)
