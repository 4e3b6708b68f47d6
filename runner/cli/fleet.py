"""The commands that serve: worker, supervisor, flower, up."""

import contextlib
import ipaddress
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from runner.bundles import signing
from runner.cli import options
from runner.cli.stdio import say
from runner.client import embedded, local_worker
from runner.client.store import Server, Store, named_servers
from runner.core.backoff import Backoff
from runner.core.errors import StoreUnreachable, UsageError
from runner.core.redaction import redact_handlers, redact_url
from runner.core.settings import WorkerSettings, default_queue, misspelt, worker_labels
from runner.providers.redis.outages import TRANSIENT_ERRORS
from runner.providers.redis.workers import Workers
from runner.tasks import capacity, parent

AGAIN = 1.0  #: seconds until a server that is away is asked again; later up to ten
IDLE = 3.0  #: a worker that is to end when idle does so after this many seconds without a running run


@click.command()
@click.option(
    "--concurrency",
    "-c",
    type=options.Count(min=1),
    metavar="N",
    help="How many tasks at once. Default: one per core, and as many that wait for models as memory holds.",
)
@click.option(
    "--pool",
    type=click.Choice(["auto", "prefork", "threads", "shared"]),
    default="auto",
    show_default=True,
    help="auto: one shared thread for tasks that mostly wait (agents, async def), a process for each of the others.",
)
@options.seconds("--lease", 0.3, "How long until a vanished machine is detected (RUNNER_LEASE, 5).")
@options.seconds(
    "--drain-timeout", 0, "How long a call in flight may take to finish on SIGTERM (RUNNER_DRAIN_TIMEOUT, 10)."
)
@click.option(
    "--loglevel",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
)
@options.text(
    "--label",
    multiple=True,
    metavar="LABEL",
    help="A label that `runner doctor` shows, such as gpu or zone=a (RUNNER_LABELS). Repeatable.",
)
@click.option("--until-idle", is_flag=True, help="Exit when no run is running any more.")
@options.queue
@options.partition
@options.redis_url
@options.broker_url
def worker(
    concurrency: int | None,
    pool: str,
    lease: float | None,
    drain_timeout: float | None,
    loglevel: str,
    label: tuple[str, ...],
    until_idle: bool,
    partition: int | None,
) -> int:
    """Serve the queue until SIGTERM. A worker that dies is restarted.

    With several servers, each has its own processes; all of them share --concurrency.
    """
    environment = {
        "RUNNER_LOGLEVEL": loglevel.upper(),
        "RUNNER_QUEUE": default_queue(embedded=not os.environ.get("RUNNER_REDIS_URL")),
    }
    if until_idle:  # it is there for one run perhaps, which may not need what takes seconds to import
        environment["RUNNER_PRELOAD"] = os.environ.get("RUNNER_PRELOAD", "")
    given = {"RUNNER_LEASE": lease, "RUNNER_DRAIN_TIMEOUT": drain_timeout, "RUNNER_LABELS": ",".join(label) or None}
    environment |= {name: str(value) for name, value in given.items() if value is not None}
    os.environ.update(environment)
    for line in misspelt():
        say(f"warning: {line}")
    worker_labels()
    WorkerSettings()  # a bad setting is said here, once
    signing.keys()
    with _counted(environment["RUNNER_QUEUE"]), ExitStack() as stack:
        servers = named_servers(partition)
        stores = _opened(servers, stack)
        if not servers[0].url:
            environment["RUNNER_REDIS_URL"] = os.environ["RUNNER_REDIS_URL"] = stores[0].url
        options.check_broker()
        parts = capacity.parts(pool, concurrency, len(servers), on_demand=not until_idle and _starts_processes_late())
        return parent.run(
            [{**environment, **server.environment, **part} for server in servers for part in parts],
            until=_until(stores, until_idle),
            poll=0.5,
            tries=3 if until_idle else None,
        )


def _starts_processes_late() -> bool:
    """Whether the processes begin when the fleet first has a task for them.

    Nothing may be imported for them, as that takes seconds, and the queues have to be on the store, where a job can be
    seen without taking it.
    """
    from runner.engine import adapters

    chosen = os.environ.get("RUNNER_PRELOAD")
    preloads = adapters.preloads() if chosen is None else chosen
    return not preloads and not os.environ.get("RUNNER_BROKER_URL")


def _opened(servers: Sequence[Server], stack: ExitStack) -> list[Store]:
    """The stores of those servers that answer. Raises `StoreUnreachable` if none of all does."""
    found: list[Store] = []
    away: list[StoreUnreachable] = []
    for server in servers:
        try:
            found.append(stack.enter_context(server.open()).confirm())
        except StoreUnreachable as error:
            away.append(error)
    if not found and servers[0].part.many == len(away):
        raise away[0]
    for one in away:
        say(f"error: its runs wait: {one}")
    return found


@contextlib.contextmanager
def _counted(queue: str) -> Iterator[None]:
    """With the embedded server, others must know at once that a worker is coming."""
    if os.environ.get("RUNNER_REDIS_URL"):
        yield
        return
    folder = embedded.default_state_dir()
    with contextlib.suppress(OSError):  # then joining the server says what is wrong
        Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
        with local_worker.counted(folder, queue):
            yield
            return
    yield


def _until(stores: Sequence[Store], until_idle: bool) -> Callable[[], bool] | None:
    """What to look at now and then: that the embedded server is there, and whether there is anything left to do."""
    if not until_idle and all(store.membership is None for store in stores):
        return None
    idle_since: list[float] = []

    def tend() -> bool:
        try:
            for store in stores:
                store.tend()
            busy = any(Workers(store.watcher).busy() for store in stores)
        except (*TRANSIENT_ERRORS, OSError):
            return False
        if busy or not until_idle:
            idle_since.clear()
            return False
        idle_since.append(time.monotonic())
        return time.monotonic() - idle_since[0] > IDLE

    return tend


@click.command()
@options.partition
@options.redis_url
@options.broker_url
def supervisor(partition: int | None) -> int:
    """Run a supervisor without a worker. Every worker carries one, too; one of them all leads."""
    servers = named_servers(partition)
    if len(servers) > 1:
        return _each(servers, lambda _: ["supervisor"])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    redact_handlers(logging.getLogger())

    with ExitStack() as stack:
        stores = _opened(servers, stack)
        options.check_broker()
        os.environ.update(servers[0].environment or {"RUNNER_REDIS_URL": stores[0].url})
        from runner.tasks.steps import make_supervisor

        watching = make_supervisor(f"supervisor-{os.uname().nodename}-{os.getpid()}")
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: watching.stop())
        watching.run()
    return 0


def _each(servers: Sequence[Server], command: Callable[[int], list[str]]) -> int:
    """A process for each server; ``command`` is what it does for the one at a place."""
    from runner.cli.process_group import run_together

    numbers = [server.part.place + 1 for server in servers]
    return run_together(
        {f"{command(0)[0]} {number}": [*command(number - 1), "--partition", str(number)] for number in numbers},
        tend=lambda: None,
    )


@click.command()
@options.text("--address", default="127.0.0.1", show_default=True, metavar="HOST")
@click.option("--port", type=click.IntRange(0, 65535), default=5555, show_default=True)
@click.option(
    "--basic-auth",
    metavar="USER:PASSWORD",
    envvar="RUNNER_FLOWER_AUTH",
    help="Required when not bound to loopback. Prefer RUNNER_FLOWER_AUTH: other users can read command lines.",
)
@options.partition
@options.redis_url
@options.broker_url
def flower(address: str, port: int, basic_auth: str | None, partition: int | None) -> int:
    """Serve Flower, to watch the jobs. With several servers, each gets one, on consecutive ports."""
    if not _is_loopback(address) and not basic_auth:
        raise UsageError(
            f"Flower on {address} would let anyone stop workers: give --basic-auth USER:PASSWORD (or "
            "RUNNER_FLOWER_AUTH), or bind it to 127.0.0.1"
        )
    options.check_login(basic_auth)
    servers = named_servers(partition)
    if len(servers) > 1:
        if basic_auth:
            os.environ["RUNNER_FLOWER_AUTH"] = basic_auth
        return _each(servers, lambda place: ["flower", "--address", address, "--port", str(port and port + place)])
    with _awaited(servers[0]) as store:
        os.environ.update({"RUNNER_REDIS_URL": store.url, **servers[0].environment})
        from runner.tasks import flower as flower_side

        return flower_side.serve(store, address, port, basic_auth)


def _awaited(server: Server) -> Store:
    """The store of a server; one of several is waited for. Raises `StoreUnreachable` for one that is alone."""
    said, backoff = False, Backoff(AGAIN, 10 * AGAIN)
    while True:
        try:
            return server.open()
        except StoreUnreachable as error:
            if server.part.many == 1:
                raise
            if not said:
                say(f"error: its Flower waits: {error}")
            said = True
            time.sleep(backoff.pause())  # a server sends no word when it is back


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@click.command()
@click.option(
    "--concurrency", "-c", type=options.Count(min=1), metavar="N", help="How many tasks the worker does at once."
)
@click.option("--port", type=click.IntRange(0, 65535), default=5555, show_default=True, help="Flower's port.")
@options.queue
@options.redis_url
def up(concurrency: int | None, port: int) -> int:
    """Start everything on this machine: the embedded server, a worker, a supervisor and Flower."""
    from runner.cli.process_group import run_together

    with ExitStack() as stack:
        stores = _opened(named_servers(), stack)
        for store in stores:
            say(f"Redis at {redact_url(store.url)}")
        parts = {
            "worker": ["worker", *(["--concurrency", str(concurrency)] if concurrency else [])],
            "supervisor": ["supervisor"],
            "flower": ["flower", "--port", str(port)],
        }

        def tend() -> None:
            for store in stores:
                store.tend()

        return run_together(parts, tend=tend)
