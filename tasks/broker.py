"""The connection to the message broker: Redis, or any other broker that kombu supports."""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from celery import Celery
from kombu.connection import Connection

from runner.core.errors import RunnerError, StoreUnreachable, UsageError, one_line
from runner.core.jobs import Job
from runner.core.redaction import redact_url
from runner.providers.base import REDIS_SCHEMES
from runner.providers.redis.connection import reach
from runner.providers.redis.envelope import JOB, argument_text, job_arguments
from runner.providers.redis.waiting_client import waiting
from runner.tasks.app import app as the_app
from runner.tasks.app import kombu_url

T = TypeVar("T")

TIMEOUT = 1.0  #: seconds that a broker has to answer the supervisor, which waits for it
PAUSE = 5.0  #: seconds until one that did not is asked again
NO_SUCH_QUEUE = "404"  #: AMQP's, and what kombu makes of it elsewhere


class CeleryBroker:
    """The `runner.engine.ports.Broker` of a Celery app. It keeps a connection, so it is for one thread."""

    def __init__(self, app: Celery = the_app) -> None:
        self._app = app
        self._connection: Any = None
        self._silent_until = 0.0

    def send(self, job: Job, queue: str) -> None:
        """Send a job as a message of ids."""
        ids = job.run_id, job.branch, job.task, job.attempt
        self._app.send_task(
            JOB,
            kwargs=job_arguments(*ids),
            queue=queue,
            task_id=job.message_id,
            shadow=job.task,
            argsrepr="()",
            kwargsrepr=argument_text(*ids),
            ignore_result=True,
        )

    def report_lost(self, worker: str, jobs: Sequence[Job], reason: str) -> None:
        """Send the events that a worker would send of these jobs and of itself if it were still there."""

        def send(channel: Any) -> None:
            events = self._app.events.Dispatcher(channel.connection.client, hostname=worker, channel=channel)
            for job in jobs:
                seen = f"runner show {job.run_id}"
                events.send("task-retried", uuid=job.message_id, exception=f"Interrupted({reason!r})", traceback=seen)
            events.send("worker-offline")

        self._ask(send)

    def depth(self, queue: str) -> int | None:
        """Return how many messages a queue holds; 0 if there is no such queue, None if the broker does not answer."""
        return self._ask(lambda channel: int(channel.queue_declare(queue, passive=True).message_count), missing=0)

    def _ask(self, call: Callable[[Any], T], missing: T | None = None) -> T | None:
        """Return what ``call`` returns for a channel; ``missing`` if there is no such queue, None without an answer."""
        if time.monotonic() < self._silent_until:
            return None
        try:
            if self._connection is None:
                limits = dict.fromkeys(("read_timeout", "write_timeout", "socket_timeout"), TIMEOUT)
                options = {**self._app.conf.broker_transport_options, **limits, "client_name": "runner:broker"}
                self._connection = self._app.connection_for_read(connect_timeout=TIMEOUT, transport_options=options)
            with self._connection.channel() as channel:
                return call(channel)
        except Exception as error:  # each transport has its own
            if str(getattr(error, "reply_code", "")) == NO_SUCH_QUEUE:
                return missing
            connection, self._connection = self._connection, None
            self._silent_until = time.monotonic() + PAUSE
            with contextlib.suppress(Exception):
                connection.release()
            return None


def check(url: str) -> None:
    """Raise `StoreUnreachable`, with the address, unless a broker accepts us; `UsageError` for an invalid URL."""
    if url.startswith(REDIS_SCHEMES):
        with waiting(url) as client:
            reach(client, f"the broker at {redact_url(url)}", url, "--broker-url")
        return
    connection: Any = None
    try:
        connection = Connection(kombu_url(url), connect_timeout=5)  # type: ignore[no-untyped-call]  # kombu is untyped there
        connection.connect()
    except RunnerError:
        raise
    except (KeyError, ValueError, ImportError) as error:  # a scheme unknown to kombu, or a URL that it cannot read
        raise UsageError(
            f"{redact_url(url)} is not a broker's URL ({one_line(error)}): "
            "name one with --broker-url, as in amqp://USER:PASSWORD@HOST:5672// or redis://HOST:6379/0"
        ) from None
    except Exception as error:  # each transport has its own
        raise StoreUnreachable(
            f"the broker at {connection.as_uri()} cannot be reached or refuses the connection: {one_line(error)}. "
            "Start it, or name another with --broker-url."
        ) from None
    finally:
        if connection is not None:
            connection.release()
