"""The Celery app. Celery carries messages with ids only; everything that must not be lost is in the store."""

import os
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from celery import Celery
from kombu.entity import Queue
from kombu.transport import TRANSPORT_ALIASES

from runner.core.settings import DEFAULT_QUEUE, setting
from runner.providers.base import REDIS_SCHEMES as SCHEMES
from runner.providers.redis import address
from runner.providers.redis.keys import home, queue_in, served
from runner.providers.redis.protocol import POOLS

CLUSTER_SCHEME = "rediscluster"  #: how kombu's URLs of a Redis Cluster begin


def state_url() -> str:
    """The URL of the state's Redis, as the command that started this process set it: a worker serves one."""
    return address.several(setting("RUNNER_REDIS_URL", "redis://127.0.0.1:6379/0"))[0]


def _broker() -> str:
    return address.several(setting("RUNNER_BROKER_URL") or state_url())[0]


@lru_cache(maxsize=8)  # asked for each job
def kombu_url(url: str) -> str:
    """Return a Redis URL in kombu's form, which differs for Unix sockets and sentinels."""
    if not url.startswith(SCHEMES):
        return url
    url = address.standard(url)
    if (watched := address.watched(url)) is not None:
        login = ":".join(quote(watched.login.get(name, ""), safe="") for name in ("username", "password"))
        at = f"{login}@" if watched.login else ""
        return ";".join(f"sentinel://{at}{host}:{port}/{watched.db}" for host, port in watched.sentinels)
    if (cluster := address.clustered(url)) is not None:
        login = ":".join(quote(cluster.login.get(name, ""), safe="") for name in ("username", "password"))
        at = f"{login}@" if cluster.login else ""
        host, port = cluster.nodes[0]
        return f"{CLUSTER_SCHEME}://{at}{f'[{host}]' if ':' in host else host}:{port}/0"
    return address.for_kombu(url)


def broker_url() -> str:
    """Return the URL of Celery's broker: the state's Redis unless another one is set."""
    return kombu_url(_broker())


def _watched() -> address.Watched | address.Clustered | None:
    url = _broker()
    if not url.startswith(SCHEMES):
        return None
    url = address.standard(url)
    return address.watched(url) or address.clustered(url)


def transport_options() -> dict[str, Any]:
    """Return kombu's options for the broker."""
    watched = _watched()
    if watched is None:
        return {}
    if isinstance(watched, address.Clustered):
        return {"cluster_nodes": watched.nodes, "cluster_tag": watched.tag}
    asked = {**watched.options, **watched.sentinel_login, "socket_connect_timeout": 5.0, "socket_timeout": 5.0}
    return {"master_name": watched.name, "sentinel_kwargs": asked}


def transport_security() -> dict[str, Any] | None:
    """Return the TLS options, which kombu's form of the URL does not contain for sentinels and clusters.

    Flower's own client never reads them there.
    """
    watched = _watched()
    url = _broker()
    options = (
        watched.options if watched else address.tls_options(address.standard(url)) if url.startswith(SCHEMES) else {}
    )
    if not options:
        return None
    return {"ssl_cert_reqs": "required", **{name: one for name, one in options.items() if name != "ssl"}}


def own_broker() -> bool:
    """Whether the broker is the state's Redis."""
    return broker_url() == kombu_url(state_url())


def pools() -> tuple[str, ...]:
    """Return the pools whose tasks this worker serves: all, unless a sibling worker serves the others."""
    one = os.environ.get("RUNNER_SERVES")
    return (one,) if one else POOLS


def in_slot(name: str) -> str:
    """Return the name of a queue or an exchange on our store: in a Redis Cluster its key is in our slot."""
    cluster = address.clustered(address.standard(state_url()))
    return name if cluster is None else queue_in(home(cluster.tag), name)


def _queue(name: str) -> Any:
    # Only there: another broker would push all it has to a consumer that acknowledges nothing.
    return Queue(name, routing_key=name, no_ack=own_broker())  # type: ignore[no-untyped-call]  # kombu is untyped there


def settings() -> dict[str, Any]:
    """Return the app's settings, read from the environment when first needed: the parent sets it when it forks."""
    queue = in_slot(os.environ.get("RUNNER_QUEUE", DEFAULT_QUEUE))
    return {
        "broker_url": broker_url(),
        "broker_use_ssl": transport_security(),
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            # The store's claims and its own resend are the recovery; kombu's is kept far away.
            "visibility_timeout": 86_400,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "priority_steps": [0],
            **transport_options(),
            "client_name": setting("RUNNER_WORKER_ID", "runner") + ":celery",
        },
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "event_serializer": "json",
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        # On the state's Redis messages are not acknowledged at all: redelivery by the broker would only run things
        # twice, and keeping book of what is unacknowledged is most of what a message costs. A lost one is sent again
        # from the store.
        "task_acks_late": False,
        "task_queues": [_queue(one) for one in served(queue, pools())],
        "worker_prefetch_multiplier": 1,
        # A job waiting behind a long one in a worker could run elsewhere.
        "worker_disable_prefetch": True,
        "worker_consumer": "runner.tasks.transport:Consumer",
        "worker_hijack_root_logger": True,
        "worker_redirect_stdouts": False,
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "task_default_queue": queue,
        "control_exchange": in_slot("celery"),
        "event_exchange": in_slot("celeryev"),
        "event_queue_prefix": in_slot("celeryev"),
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_proc_alive_timeout": 60.0,
        "worker_lost_wait": 0.1,
        "enable_utc": True,
    }


TRANSPORT_ALIASES[CLUSTER_SCHEME] = "runner.tasks.transport:ClusterTransport"
app = Celery("runner", set_as_current=True)
app.add_defaults(settings)
