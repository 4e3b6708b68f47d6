"""Celery's consumer on a Redis that may be unavailable: it waits and continues, like the rest of this package.

Celery itself restarts the consumer seconds after a lost connection, and ends the worker after a refusal (a BRPOP is a
write), and with it the tasks in flight.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from time import monotonic, sleep
from typing import Any

from celery.worker import consumer
from celery.worker.state import maybe_shutdown
from kombu.transport import TRANSPORT_ALIASES, redis

from runner.core.backoff import Backoff, jittered
from runner.core.errors import one_line
from runner.providers.redis import address
from runner.providers.redis.cluster import SecureSlotConnection, SlotConnection
from runner.providers.redis.connection import NoticingClient, noticing_connections
from runner.providers.redis.outages import TRANSIENT_ERRORS, NotNow, outage

log = logging.getLogger(__name__)

PAUSE = 0.2  #: seconds until the broker is asked again
OWN_KEYS = (
    *("keyprefix_queue", "keyprefix_binding_deadlines", "keyprefix_binding_permanent"),
    *("unacked_key", "unacked_index_key", "unacked_mutex_key"),
)  #: what says how kombu calls keys that are no queues
LONGEST_PAUSE = 1.0  #: the same, where it has been away for long


class Poller(redis.MultiChannelPoller):
    """Requests messages before the event loop waits, and reads those that arrived."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # kombu is untyped there
        self._paused: dict[tuple[Any, str], float] = {}
        self._backoffs: dict[tuple[Any, str], Backoff] = {}
        self.loop: Any = None  #: the event loop that waits for it, if one does; kombu forgets which it is at a reset

    def _register_BRPOP(self, channel: Any) -> None:
        self._ask(channel, "BRPOP", super()._register_BRPOP)

    def _register_LISTEN(self, channel: Any) -> None:
        self._ask(channel, "LISTEN", super()._register_LISTEN)

    def _ask(self, channel: Any, kind: str, ask: Callable[[Any], None]) -> None:
        if monotonic() >= self._paused.get((channel, kind), 0.0):
            try:
                ask(channel)
            except TRANSIENT_ERRORS as error:
                self._pause((channel, kind), error)

    def on_readable(self, fileno: int) -> None:
        """Something arrived: a message, a timeout after a second, or an error that none is available now."""
        asked = self._fd_to_chan.get(fileno)
        try:
            super().on_readable(fileno)  # type: ignore[no-untyped-call]  # kombu is untyped there
        except TRANSIENT_ERRORS as error:
            self._pause(asked, error)
            raise Empty from None
        except Empty:
            self._answered(asked)
            raise
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # kombu would end the worker
            log.error("a message could not be read; dropping it: %s", one_line(error))
        self._answered(asked)

    def _answered(self, asked: Any) -> None:
        if self._paused.pop(asked, None):
            del self._backoffs[asked]
            outage.ends(asked)

    def _pause(self, asked: Any, error: Exception) -> None:
        outage.begins(asked, error)
        pause = self._backoffs.setdefault(asked, Backoff(PAUSE, LONGEST_PAUSE)).pause()
        self._paused[asked] = monotonic() + pause
        if self.loop is not None:  # it may have nothing else to wake it
            self.loop.call_later(pause, int)

    def leave(self, connection: Any) -> None:
        """Stop waiting for a connection that is about to be closed.

        A pool child that was forked meanwhile has it open as well, so the kernel would still report events on it, under
        a number that another connection may have by then: kombu would read from that, and wait for an answer that is
        not due.
        """
        if connection._sock is not None and connection.pid == os.getpid():  # a child would have its parent leave it
            with suppress(KeyError):
                self.poller.unregister(connection._sock)

    def discard(self, channel: Any) -> None:
        """The channel is closed: nothing is waited for."""
        super().discard(channel)  # type: ignore[no-untyped-call]  # kombu is untyped there
        for asked in [one for one in self._paused if one[0] is channel]:
            del self._paused[asked], self._backoffs[asked]
            outage.ends(asked, reached=False)


def _left_when_closed(kind: type[Any], poller: Poller) -> type[Any]:
    """A class of redis-py's connections that the poller leaves before they are closed."""

    class Connection(kind):
        def disconnect(self, *args: Any, **kwargs: Any) -> None:
            poller.leave(self)
            super().disconnect(*args, **kwargs)

    return Connection


class _Noticing:
    """Connections and commands whose refusals are noticed, and connections that are left when they are closed."""

    def _get_client(self) -> Any:
        return NoticingClient

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]  # the class beside this one has it
        kind = noticing_connections(found["connection_class"])
        if asynchronous:  # it is one that the event loop waits for
            kind = _left_when_closed(kind, self.connection.cycle)  # type: ignore[attr-defined]  # the class beside has it
        return found | {"connection_class": kind}


class Channel(_Noticing, redis.Channel):
    """The channel to one server."""


class SentinelChannel(_Noticing, redis.SentinelChannel):
    """The channel to the current master behind Sentinel."""


class ClusterChannel(_Noticing, redis.Channel):
    """The channel to the master that has a partition's slot, which all of kombu's own keys are in."""

    connection_class: Any = SlotConnection
    connection_class_ssl: Any = SecureSlotConnection

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        asked = connection.client.transport_options
        self._slot = {"nodes": asked["cluster_nodes"], "tag": asked["cluster_tag"]}
        for name in OWN_KEYS:
            setattr(self, name, f"{{{asked['cluster_tag']}}}{getattr(self, name)}")
        super().__init__(connection, **kwargs)  # type: ignore[no-untyped-call]  # kombu is untyped there

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        return super()._connparams(asynchronous) | self._slot


class Transport(redis.Transport):
    """kombu's transport for Redis. A transient refusal is one of the errors after which it may be used again."""

    Channel: Any = Channel
    connection_errors = (*redis.Transport.connection_errors, NotNow)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]  # kombu is untyped there
        self.cycle: Any = Poller()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Make the loop wait for it."""
        self.cycle.loop = loop
        super().register_with_event_loop(connection, loop)  # type: ignore[no-untyped-call]  # kombu is untyped there


class SentinelTransport(Transport):
    """The same behind Sentinel."""

    default_port: Any = address.SENTINEL_PORT
    Channel: Any = SentinelChannel


class ClusterTransport(Transport):
    """The same for a Redis Cluster."""

    Channel: Any = ClusterChannel


class Consumer(consumer.Consumer):
    """Starts once its Redis serves it: it waits like everything else in this package, and logs that once."""

    def ensure_connected(self, conn: Any) -> Any:
        """Connect, however long that takes, or end with the worker."""
        if not isinstance(conn.transport, Transport):
            return super().ensure_connected(conn)
        conn.ensure_connection(
            lambda error, _: outage.begins(self, error),
            interval_start=jittered(PAUSE),
            interval_step=jittered(PAUSE),
            interval_max=jittered(LONGEST_PAUSE),
            callback=maybe_shutdown,
        )
        self.first_connection_attempt = False
        return conn

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Its first command was refused; retry."""
        if not isinstance(exc, TRANSIENT_ERRORS):
            super().on_connection_error_before_connected(exc)
            return
        outage.begins(self, exc)
        sleep(jittered(LONGEST_PAUSE))  # Celery would not pause

    def loop_args(self) -> Any:
        """The consumer is ready."""
        outage.ends(self)
        return super().loop_args()


def install() -> None:
    """Make Celery's worker use it."""
    for scheme, kind in (("redis", Transport), ("rediss", Transport), ("sentinel", SentinelTransport)):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{kind.__name__}"
