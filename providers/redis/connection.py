"""Connections to Redis: how they are opened, and which of them wait for a server that is away or refuses for now."""

import re
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from runner.errors import StoreUnreachable, UsageError
from runner.providers.redis.patience import NOT_NOW, NotNow, in_words, not_now, noticing, patiently
from runner.redaction import redact_url

_HINT = "It is redis://USER:PASSWORD@HOST:PORT/DB; a / # ? : or @ in the password is written %2F %23 %3F %3A %40."

Client: TypeAlias = Any
"""A redis-py client that decodes. Its own annotations allow bytes everywhere, which never come."""


class _Noticing:
    """Raises a `NotNow` for each answer that is one, also out of a pipeline."""

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        """Read one answer."""
        answer = noticing(partial(super().parse_response, connection, command_name, **options))  # type: ignore[misc]
        for one in answer if command_name == "_" and isinstance(answer, list) else ():  # what EXEC gives
            if found := not_now(one):
                raise found
        return answer


class NoticingPipeline(_Noticing, Pipeline):
    """Commands in one round trip, asked once."""

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Do them all. Returns their answers."""
        return noticing(partial(super().execute, raise_on_error))  # a connection may be refused as it begins


class NoticingClient(_Noticing, Redis):
    """A client that asks once: for who watches, and for people, who can ask again."""

    pipelines: type[Pipeline] = NoticingPipeline

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """Commands in one round trip."""
        return self.pipelines(self.connection_pool, self.response_callbacks, transaction, shard_hint)

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command and return its answer."""
        return noticing(partial(super().execute_command, *command, **options))


class PatientPipeline(NoticingPipeline):
    """Commands in one round trip, all of them repeated while the store is away or refuses for now."""

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Do them all. Returns their answers."""
        stack = list(self.command_stack)

        def again() -> list[Any]:
            self.command_stack = list(stack)  # an error empties it
            return super(PatientPipeline, self).execute(raise_on_error)

        return patiently(again, refused=partial(_leave, self.connection_pool))


class PatientClient(NoticingClient):
    """A client whose every command waits and is repeated while the store is away or refuses for now."""

    pipelines = PatientPipeline

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command and return its answer."""
        ask = partial(super().execute_command, *command, **options)
        return patiently(ask, refused=partial(_leave, self.connection_pool))


def _leave(pool: Any, error: NotNow) -> None:
    """Idle connections to a server that is no longer the one to write to are closed; others may find the right one."""
    if error.moved:
        pool.disconnect(inuse_connections=False)


class Line:
    """One connection of its own, for one caller at a time, on which an answer can be left for later.

    It waits as a `PatientClient` does.

    `later` sends without waiting: its answer is read, and thrown away, with the next `execute_command`. What breaks
    off in the middle (an interrupt, a lost server) closes the connection, so no answer is ever taken for another's.
    """

    def __init__(self, client: Client) -> None:
        self._connection: Any = patiently(client.connection_pool.get_connection)
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
        return patiently(partial(self.ask, *command))

    def ask(self, *command: Any) -> Any:
        """The same, once."""
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
        except ResponseError as error:
            if (found := not_now(error)) is not None and found.moved:
                self.close()
            raise found or error from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the socket; the next command opens it again."""
        self._unread = 0
        self.fresh = True
        self._connection.disconnect()


def patient(url: str, *, name: str = "runner") -> Client:
    """A client for all that a task asks: it waits while the store is away or refuses for now.

    Every operation of ours may be repeated; a lost answer is asked for again. Raises as `connect`.
    """
    return _open(PatientClient, url, name=name)


def connect(
    url: str,
    *,
    name: str = "runner",
    timeout: float | None = 10.0,
    connect_timeout: float = 5.0,
    single: bool = False,
    decode: bool = True,
) -> Client:
    """A client that asks once, for ``redis://``, ``rediss://`` or ``unix://``. Times are in seconds.

    Opens nothing yet, unless it is to have a ``single`` connection, of which the server can tell that it closed.
    Raises `UsageError` for what is no URL of a Redis.
    """
    return _open(
        NoticingClient,
        url,
        name=name,
        timeout=timeout,
        connect_timeout=connect_timeout,
        single=single,
        decode=decode,
    )


def _open(
    kind: type[Redis],
    url: str,
    *,
    name: str,
    timeout: float | None = 10.0,
    connect_timeout: float = 5.0,
    single: bool = False,
    decode: bool = True,
) -> Client:
    if "@" in url.partition("://")[2] and "@" not in urlsplit(url).netloc:
        raise UsageError(f"{redact_url(url)} is not a Redis URL: its password ends it early. {_HINT}")
    try:
        if not url.startswith("unix:") and "://" in url and not re.fullmatch(r"/?|/\d+", urlsplit(url).path):
            raise ValueError(url)  # or it would be another database, in silence
        return noticing(
            partial(
                kind.from_url,
                url,
                client_name=name,
                single_connection_client=single,
                decode_responses=decode,
                encoding_errors="surrogateescape",  # outputs that are packed are no text
                socket_timeout=timeout,
                retry=Retry(NoBackoff(), 0),
                **(
                    {}
                    if url.startswith("unix:")
                    else {"socket_connect_timeout": connect_timeout, "socket_keepalive": True}
                ),
            )
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


def refusing(client: Client) -> str:
    """Why the server takes no writes now, in words; "" if it does, or cannot be asked. Nothing is written."""
    try:
        client.execute_command("EVAL", "#!lua\nreturn 1", 0)  # one that may write is refused before it begins
    except NOT_NOW as error:
        return in_words(error)
    except ResponseError:  # an ACL may forbid it
        pass
    return ""


def server_version(client: Client) -> tuple[int, ...]:
    """The server's Redis version; Valkey tells the one it is compatible with."""
    try:
        info = client.info("server")
    except ResponseError:  # an ACL may forbid INFO; then the scripts will tell
        return (7, 0)
    return tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])


def _said(error: Exception) -> str:
    return str(error).rstrip(". ")
