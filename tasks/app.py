"""The Celery app. Celery carries messages of ids; everything that must not be lost is in the store."""

import contextlib
import os
import time
from typing import Any
from urllib.parse import quote

from celery import Celery
from kombu.connection import Connection
from kombu.entity import Queue

from runner.core.errors import RunnerError, StoreUnreachable, UsageError, said
from runner.core.jobs import Job
from runner.core.redaction import redact_url
from runner.core.settings import DEFAULT_QUEUE
from runner.providers.base import REDIS_SCHEMES as SCHEMES
from runner.providers.redis import address
from runner.providers.redis.connection import reach, waiting
from runner.providers.redis.envelope import JOB, job_arguments
from runner.providers.redis.protocol import served

BROKER_TIMEOUT = 1.0  #: seconds that a broker has to say how long a queue is: the supervisor waits for it
BROKER_PAUSE = 5.0  #: seconds until one that did not is asked again
NO_SUCH_QUEUE = "404"  #: AMQP's, and what kombu makes of it elsewhere


def state_url() -> str:
    """The state's Redis, as the command that started this process set it."""
    return os.environ.get("RUNNER_REDIS_URL", "redis://127.0.0.1:6379/0")


def kombu_url(url: str) -> str:
    """kombu's spelling of a Redis, where it has one of its own: of a unix socket, and of sentinels."""
    if not url.startswith(SCHEMES):
        return url
    url = address.standard(url)
    if (watched := address.watched(url)) is not None:
        login = ":".join(quote(watched.login.get(name, ""), safe="") for name in ("username", "password"))
        at = f"{login}@" if watched.login else ""
        return ";".join(f"sentinel://{at}{host}:{port}/{watched.db}" for host, port in watched.sentinels)
    return address.for_kombu(url)


def broker_url() -> str:
    """Celery's broker: the state's Redis unless another was named."""
    return kombu_url(os.environ.get("RUNNER_BROKER_URL") or state_url())


def _watched() -> address.Watched | None:
    url = os.environ.get("RUNNER_BROKER_URL") or state_url()
    return address.watched(address.standard(url)) if url.startswith(SCHEMES) else None


def transport_options() -> dict[str, Any]:
    """What kombu is to know of the broker beside its URL."""
    watched = _watched()
    if watched is None:
        return {}
    asked = {**watched.options, **watched.sentinel_login, "socket_connect_timeout": 5.0, "socket_timeout": 5.0}
    return {"master_name": watched.name, "sentinel_kwargs": asked}


def transport_security() -> dict[str, Any] | None:
    """What TLS needs, where the URL that kombu gets does not say it."""
    watched = _watched()
    if watched is None or not watched.options:
        return None
    return {"ssl_cert_reqs": "required", **{name: one for name, one in watched.options.items() if name != "ssl"}}


def own_broker() -> bool:
    """Whether the broker is the state's Redis."""
    return broker_url() == kombu_url(state_url())


def _queue(name: str) -> Any:
    # Only there: another broker would push all it has to a consumer that acknowledges nothing.
    return Queue(name, routing_key=name, no_ack=own_broker())  # type: ignore[no-untyped-call]


def make_app() -> Celery:
    """A configured app with the one task that there is."""
    app = Celery("runner", set_as_current=True)
    queue = os.environ.get("RUNNER_QUEUE", DEFAULT_QUEUE)
    app.conf.update(
        broker_url=broker_url(),
        broker_use_ssl=transport_security(),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            # The store's claims and its own resend are the recovery; kombu's is kept far away.
            "visibility_timeout": 86_400,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "priority_steps": [0],
            **transport_options(),
            "client_name": os.environ.get("RUNNER_WORKER_ID", "runner") + ":celery",
        },
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        event_serializer="json",
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # On the state's Redis messages are not acknowledged at all: redelivery by the broker would only run things
        # twice, and keeping book of what is unacknowledged is most of what a message costs. A lost one is sent again
        # from the store.
        task_acks_late=False,
        task_queues=[_queue(one) for one in served(queue)],
        worker_prefetch_multiplier=1,
        # A job waiting behind a long one in a worker could run elsewhere.
        worker_disable_prefetch=True,
        worker_consumer="runner.tasks.transport:Consumer",
        worker_hijack_root_logger=True,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        task_send_sent_event=False,
        task_default_queue=queue,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_proc_alive_timeout=60.0,
        worker_lost_wait=0.1,
        enable_utc=True,
    )
    return app


app = make_app()


def check_broker() -> None:
    """Raise `StoreUnreachable`, with the address tried, unless the broker answers and lets us in."""
    if own_broker():
        return
    url = os.environ["RUNNER_BROKER_URL"]
    if url.startswith(SCHEMES):
        with waiting(url) as client:
            reach(client, f"the broker at {redact_url(url)}", url, "--broker-url")
        return
    connection: Any = None
    try:
        connection = Connection(broker_url(), connect_timeout=5)  # type: ignore[no-untyped-call]
        connection.connect()
    except RunnerError:
        raise
    except (KeyError, ValueError, ImportError) as error:  # a scheme that kombu knows not, or a URL that it cannot read
        raise UsageError(
            f"{redact_url(url)} is not a broker's URL ({said(error)}): "
            "name one with --broker-url, as in amqp://USER:PASSWORD@HOST:5672// or redis://HOST:6379/0"
        ) from None
    except Exception as error:  # each transport has its own
        raise StoreUnreachable(
            f"the broker at {connection.as_uri()} cannot be reached or refuses us: {said(error)}. Start it, or name "
            "another with --broker-url."
        ) from None
    finally:
        if connection is not None:
            connection.release()


def send(job: Job, queue: str) -> None:
    """Hand a job to the broker (where the broker is not the state's Redis)."""
    arguments: dict[str, Any] = job_arguments(job.run_id, job.branch, job.task, job.attempt)
    app.send_task(
        JOB,
        kwargs=arguments,
        queue=queue,
        task_id=job.message_id,
        shadow=job.task,
        argsrepr="()",
        kwargsrepr=repr(arguments),
        ignore_result=True,
    )


class QueueDepth:
    """How many messages wait in a queue of the broker. For one thread: it keeps a connection."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._silent_until = 0.0

    def __call__(self, queue: str) -> int | None:
        """What the broker says; 0 where it has no such queue, None where it does not answer."""
        if time.monotonic() < self._silent_until:
            return None
        try:
            if self._connection is None:
                limits = dict.fromkeys(("read_timeout", "write_timeout", "socket_timeout"), BROKER_TIMEOUT)
                self._connection = app.connection_for_read(
                    connect_timeout=BROKER_TIMEOUT,
                    transport_options={**app.conf.broker_transport_options, **limits, "client_name": "runner:depth"},
                )
            with self._connection.channel() as channel:
                return int(channel.queue_declare(queue, passive=True).message_count)
        except Exception as error:  # each transport has its own
            if str(getattr(error, "reply_code", "")) == NO_SUCH_QUEUE:
                return 0
            connection, self._connection = self._connection, None
            self._silent_until = time.monotonic() + BROKER_PAUSE
            with contextlib.suppress(Exception):
                connection.release()
            return None
