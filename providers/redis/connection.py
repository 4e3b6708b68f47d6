"""Opens connections to Redis. Some retry while the server is unavailable."""

import logging
import os
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import filterfalse, islice
from typing import Any, TypeAlias, TypeVar

import hiredis
from redis import ConnectionPool, Redis
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError
from redis.retry import Retry

from runner.core.errors import StoreUnreachable
from runner.core.redaction import redact_url
from runner.providers.redis import address, cluster, keys, sentinels
from runner.providers.redis.outages import (
    NOT_LET_IN,
    REFUSES,
    TRANSIENT_ERRORS,
    NotNow,
    brief,
    forbidden,
    format_store_error,
    not_now,
    remedy,
    retry_while_unavailable,
)
from runner.providers.redis.sentinels import NoMaster

log = logging.getLogger(__name__)

T = TypeVar("T")

is_pushed, _is_error = hiredis.PushNotification.__instancecheck__, RedisError.__instancecheck__

Client: TypeAlias = Any
"""A redis-py client that decodes. Its own annotations allow bytes everywhere, which never come."""


class _NoticingConnection:
    """Raises a `NotNow` for each answer that is one, also while it begins, or for a subscription."""

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read one answer."""
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]  # the class beside this one has it
        except (ResponseError, AuthenticationError) as error:
            raise not_now(error) or error from None


@lru_cache(maxsize=8)  # kombu makes a class for each channel
def noticing_connections(kind: type[Any]) -> type[Any]:
    """The same class of redis-py's connections, of which each raises a `NotNow` for each answer that is one."""
    return kind if issubclass(kind, _NoticingConnection) else type(kind.__name__, (_NoticingConnection, kind), {})


class _Noticing:
    """Raises a `NotNow` for each answer that is one, also among those of a transaction."""

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        """Read one answer."""
        answer = super().parse_response(connection, command_name, **options)  # type: ignore[misc]  # the class beside this one has it
        for one in answer if command_name == "_" and isinstance(answer, list) else ():  # what EXEC gives
            if found := not_now(one):
                raise found
        return answer


class NoticingPipeline(_Noticing, Pipeline):
    """Commands in one round trip, asked once."""

    mend: Callable[[], bool] = staticmethod(bool)

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Do them all. Returns their answers."""
        try:
            answers = super().execute(raise_on_error)
        except NotNow as error:
            error.mended = error.overwritten and self.mend()
            raise
        if not raise_on_error and any(found.overwritten for found in map(not_now, answers) if found):
            self.mend()
        return answers


class NoticingClient(_Noticing, Redis):
    """A client that asks once: for who watches, and for people, who can ask again."""

    pipelines: type[Pipeline] = NoticingPipeline
    home = keys.HOME
    """What the keys of its store begin with."""
    mends = False
    """Whether it removes the keys of that store which were overwritten with another type, when it meets one."""

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command and return its answer."""
        return self.mending(partial(super().execute_command, *command, **options))

    def mending(self, ask: Callable[[], T]) -> T:
        """Return what ``ask`` returns, once more where keys were overwritten that could be removed."""
        try:
            return ask()
        except NotNow as error:
            if not (error.overwritten and self.mend()):
                raise
            return ask()

    def ask_all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the answers to commands that go in one round trip, as they come: a hash is a list.

        It does without redis-py's pipeline, which calls 35 functions for each of them.
        """
        if not commands:
            return []
        return self.mending(partial(self._ask_all, b"".join(map(hiredis.pack_command, commands)), len(commands)))

    def _ask_all(self, packed: bytes, many: int) -> list[Any]:
        connection: Any = self.connection_pool.get_connection()
        try:
            connection.send_packed_command([packed])
            answers = list[Any]()
            while len(answers) < many:
                answers.append(connection.read_response())
                # What has come with it needs no three calls each.
                more = filterfalse(is_pushed, iter(connection._parser._reader.gets, NOT_ENOUGH_DATA))
                answers += islice(more, many - len(answers))
            if error := next(filter(_is_error, answers), None):
                raise getattr(connection, "refusal", not_now)(error) or error
            return answers
        except BaseException:
            connection.disconnect()  # what is unread there would be another's answer
            raise
        finally:
            self.connection_pool.release(connection)

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """Commands in one round trip."""
        made = self.pipelines(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.mend = self.mend  # type: ignore[attr-defined]  # it is a `NoticingPipeline`
        return made

    def mend(self) -> bool:
        """Remove the keys that were overwritten with another type. Returns whether there were any."""
        return self.mends and _overwritten().remove(Redis(connection_pool=self.connection_pool), self.home)


def _overwritten() -> Any:
    from runner.providers.redis import overwritten  # seldom: it imports the scripts

    return overwritten


class PatientPipeline(NoticingPipeline):
    """Commands in one round trip, all of them repeated while the store is away or refuses for now."""

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Do them all. Returns their answers."""
        again = repeating(self, partial(super().execute, raise_on_error))
        return retry_while_unavailable(again, refused=partial(leave, self.connection_pool))


class PatientClient(NoticingClient):
    """A client whose every command waits and is repeated while the store is away or refuses for now."""

    pipelines = PatientPipeline

    def mend(self) -> bool:
        """The same; where another process is at that, wait until it is done."""
        return self.mends and _overwritten().remove(Redis(connection_pool=self.connection_pool), self.home, waits=True)

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command and return its answer."""
        ask = partial(super().execute_command, *command, **options)
        return retry_while_unavailable(ask, refused=partial(leave, self.connection_pool))


def repeating(pipeline: Pipeline, execute: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    """What executes the pipeline however often it is called: an error empties it."""
    stack = list(pipeline.command_stack)

    def again() -> list[Any]:
        pipeline.command_stack = list(stack)
        return execute()

    return again


def leave(pool: Any, error: NotNow) -> None:
    """Idle connections to a server that is no longer the one to write to are closed; others may find the right one."""
    if error.moved:
        pool.disconnect(inuse_connections=False)


def patient(url: str, *, name: str = "runner") -> Client:
    """A client for all that a task asks: it waits while the store is away or refuses for now.

    Every operation of ours may be repeated; a lost answer is asked for again. Raises as `connect`.
    """
    return connect(url, name=name, kind=PatientClient)


def connect(
    url: str,
    *,
    name: str = "runner",
    timeout: float | None = 10.0,
    connect_timeout: float = 5.0,
    single: bool = False,
    decode: bool = True,
    kind: type[Redis] = NoticingClient,
) -> Client:
    """A client that asks once, or of another ``kind``. URLs are those of `address`, times in seconds.

    Opens nothing yet, unless it is to have a ``single`` connection, of which the server can tell that it closed.
    Raises `UsageError` for what is no URL of a Redis.
    """
    url = address.standard(url)
    options: dict[str, Any] = {
        "client_name": name,
        "decode_responses": decode,
        "encoding_errors": "surrogateescape",  # outputs that are packed are no text
        "socket_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        **_driver(),
    }
    if not url.startswith("unix:"):
        options |= {"socket_connect_timeout": connect_timeout, "socket_keepalive": True}
    try:
        pool: Any
        home = keys.HOME
        if (found := address.clustered(url)) is not None:
            tag = found.tag or keys.CLUSTER_TAG
            home = keys.home(tag)
            pool = cluster.connections(found, tag, options, follow=not single)
        elif (watched := address.watched(url)) is not None:
            pool = sentinels.connections(watched, options)
        else:
            pool = ConnectionPool.from_url(url, **options)
        pool.connection_class = noticing_connections(pool.connection_class)
        client: Any = kind(connection_pool=pool, single_connection_client=single)
        client.home = home
        client.mends = decode  # others keep states there, or jobs
        client.auto_close_connection_pool = True
        return client
    except ValueError as error:
        raise address.refused(url, *([address.SCHEMES] if "scheme" in str(error) else [])) from None


@lru_cache(maxsize=1)
def _driver() -> dict[str, Any]:
    """As what a connection introduces itself. Else redis-py looks up its own version for each of them."""
    try:
        from redis.driver_info import DriverInfo
    except ImportError:  # an older one
        return {}
    return {"driver_info": DriverInfo()}


def check(client: Client, url: str) -> None:
    """Raise `StoreUnreachable`, with the address tried, unless the server answers and lets us in."""
    reach(client, f"Redis at {redact_url(url)}", url, "--redis-url")
    version = server_version(client)
    if version < (7, 0):
        raise StoreUnreachable(
            f"Redis at {redact_url(url)} is {'.'.join(map(str, version))}; version 7.0 or newer is needed."
        )


def reach(client: Client, what: str, url: str, option: str, ask: Callable[[], T] | None = None) -> T | None:
    """The same of a server that is called ``what`` and named with ``option``, of whatever version; what it is asked."""
    try:
        return ask() if ask is not None else client.ping() and None
    except (AuthenticationError, NoPermissionError, *REFUSES) as error:
        refusal = NotNow("NOPERM", str(error)) if isinstance(error, NoPermissionError) else not_now(error) or error
        if not isinstance(refusal, NotNow) or refusal.code not in NOT_LET_IN:
            raise StoreUnreachable(f"{what} is unavailable: {format_store_error(refusal)}. {remedy(refusal)}") from None
        master = address.watched(address.standard(url))
        raise StoreUnreachable(
            f"{what} refuses to authenticate: {brief(error)}. Check user and password in the URL"
            + (f", which are those of the master {master.name!r} and its replicas." if master else ".")
        ) from None
    except NoMaster as error:
        raise StoreUnreachable(f"{what} cannot be reached: {error.explained(option)}.") from None
    except (RedisError, OSError) as error:
        advice = _tls_advice(url, str(error), f"Start it, or name another with {option}.")
        raise StoreUnreachable(f"{what} cannot be reached: {brief(error)}. {advice}") from None


def _tls_advice(url: str, said: str, otherwise: str) -> str:
    """Return what to do where only one side wants TLS, or where a file is wrong; ``otherwise`` for any other error."""
    if not address.encrypted(url):
        if "DB index is out of range" in said:
            return "It has fewer databases: check the number at the end of the URL, the first is 0."
        cut = "reset by peer" in said or "closed by server" in said
        return f"{otherwise} If it wants TLS, write rediss://." if cut else otherwise
    unreadable = [option for option, path in address.tls_files(url) if not os.access(path, os.R_OK)]
    if unreadable:
        return f"The file of {unreadable[0]} cannot be read here."
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return "Name the file of the authority that signed its certificate, as in ?ssl_ca_certs=/etc/ssl/ca.pem."
    return "If it has no TLS, write redis://." if "WRONG_VERSION_NUMBER" in said else otherwise


def refusing(client: Client) -> Exception | None:
    """Why the server takes no writes now; None if it does, or an ACL forbids to ask so. Nothing is written."""
    try:
        client.execute_command("EVAL", "#!lua\nreturn 1", 0)  # one that may write is refused before it begins
    except TRANSIENT_ERRORS as error:
        return None if forbidden(error) else error
    except ResponseError:
        pass
    return None


def server_version(client: Client) -> tuple[int, ...]:
    """The server's Redis version; Valkey tells the one it is compatible with."""
    try:
        info = client.info("server")
    except ResponseError:  # an ACL may forbid INFO; then the scripts will tell
        return (7, 0)
    return tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
