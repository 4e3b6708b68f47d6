"""Flower on our app. It shows ids and names only: messages carry nothing else."""

import logging
import threading

from runner.store import Store
from runner.tasks.app import app

MONITOR_TERM = 15  #: seconds that "a Flower watches" holds without being said again


def serve(store: Store, address: str, port: int, basic_auth: str | None) -> None:
    """Run Flower until a signal ends it."""
    arguments = [
        "flower",
        f"--address={address}",
        f"--port={port}",
        "--purge_offline_workers=60",
        "--max_tasks=10000",
    ]
    if basic_auth:
        arguments.append(f"--basic_auth={basic_auth}")
    stop = threading.Event()
    threading.Thread(target=_say_so, args=(store, stop), daemon=True).start()
    logging.getLogger("tornado.access").setLevel(logging.WARNING)
    try:
        app.start(argv=arguments)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        stop.set()


def _say_so(store: Store, stop: threading.Event) -> None:
    """Workers that start later send events from their first job on; those that run are asked to now."""
    first = True
    while not stop.is_set():
        try:
            store.tend()
            store.workers.watch(MONITOR_TERM)
            if first:
                app.control.enable_events()
                first = False
        except Exception:
            logging.getLogger(__name__).warning("Redis does not answer; Flower waits for it")
        stop.wait(MONITOR_TERM / 3)
