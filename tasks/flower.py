"""Flower for this app. It shows only names and ids: messages carry no payload, and URLs are shown without passwords."""

import asyncio
import contextlib
import copy
import logging
import os
import signal
import sys
import threading
from typing import Any, NoReturn

from celery import Celery
from flower.app import Flower
from flower.inspector import Inspector
from flower.options import options
from flower.urls import settings
from tornado.ioloop import IOLoop

from runner.client.store import Store
from runner.core.errors import UsageError
from runner.core.redaction import redact_handlers, redact_url
from runner.tasks.app import app

MONITOR_TERM = 15  #: seconds that "a Flower watches" holds without being said again
COLUMNS = "name,state,received,runtime,worker,uuid"  #: the id, which is the longest and tells nothing new, comes last

#: Flower logs every refused page, and of every look at workers when there are none.
QUIET = ("tornado.access", "tornado.general", "flower.inspector")


class _OneLine(logging.Formatter):
    """Logs an unavailable Redis in one line, without a traceback, and retries."""

    def format(self, record: logging.LogRecord) -> str:
        away = app.connection_for_read().connection_errors
        if record.exc_info and isinstance(record.exc_info[1], away):
            record = copy.copy(record)
            record.exc_info = record.exc_text = None
        return super().format(record)


class _Inspector(Inspector):
    """The workers' reports without the broker's password: for a socket, kombu gives the whole URL as the host name."""

    def _on_update(self, workername: str, method: str, response: Any) -> None:
        if method == "stats":
            broker = (response.get("consumer") or response).get("broker", {})
            broker["hostname"] = redact_url(str(broker.get("hostname", "")))
        super()._on_update(workername, method, response)


def serve(store: Store, address: str, port: int, basic_auth: str | None) -> NoReturn:
    """Run Flower until SIGTERM or SIGINT, which end this process. Raises `UsageError` if it cannot listen."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    redact_handlers(logging.getLogger())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    flower = _make(app, address, port, basic_auth)
    try:
        bound = flower.start_http_server()
    except OSError as error:
        raise UsageError(f"Flower cannot listen on {_netloc(address, port)}: {error.strerror}") from None
    loop = asyncio.get_event_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, flower.stop)
    watch = _Watch(store)
    watch.start()
    print(f"Flower at http://{_netloc(address, bound)}", file=sys.stderr, flush=True)
    flower.start()
    watch.end()
    os._exit(0)  # Flower's threads would first wait for the workers' answers, or for a Redis that is away


def _make(capp: Celery, address: str, port: int, basic_auth: str | None) -> Flower:
    IOLoop.current()  # makes the event loop
    options.address = address
    options.port = port
    options.basic_auth = [basic_auth] if basic_auth else []
    options.read_only = not basic_auth  # without a password Flower refuses what its buttons ask for
    options.tasks_columns = COLUMNS
    options.format_task = _named
    options.max_tasks = 10_000
    options.purge_offline_workers = 60
    flower = Flower(capp=capp, options=options, **settings)
    flower.inspector = _Inspector(flower.io_loop, capp, options.inspect_timeout / 1000)
    return flower


def _named(task: Any) -> Any:
    """The name of a job that was received before Flower started; its id has run, branch, task and attempt."""
    task.name = task.name or task.uuid
    return task


def _netloc(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class _Watch(threading.Thread):
    """Announces that Flower is running, so that workers that start later send events from their first job on.

    Running workers are asked now; Flower itself asks again every few seconds.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(name="watch", daemon=True)
        self._store = store
        self._ended = threading.Event()

    def run(self) -> None:
        """Run until `end`."""
        pause = self._say()
        with contextlib.suppress(Exception):
            app.control.enable_events()
        while not self._ended.wait(pause):
            pause = self._say()
        # Events cost a busy worker half its speed. Another Flower asks for them again within seconds.
        with contextlib.suppress(Exception):
            app.control.disable_events()

    def end(self) -> None:
        """Flower ends; Redis may be away."""
        self._ended.set()
        self.join(2.0)

    def _say(self) -> float:
        try:
            self._store.tend()
            self._store.workers.watch(MONITOR_TERM)
        except Exception:
            logging.getLogger(__name__).warning("Redis does not answer; waiting for it")
        return MONITOR_TERM / 3
