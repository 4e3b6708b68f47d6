"""The checks of ``runner doctor``."""

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

from runner.bundles import signing
from runner.cli import options
from runner.cli.spending import format_unrecorded
from runner.cli.stdio import counted
from runner.client.handle import unrecorded_in
from runner.client.store import Server, Store, named_servers
from runner.core import settings
from runner.core.errors import Exit, RunnerError, UsageError
from runner.core.redaction import redact_url
from runner.llm.list_prices import configured
from runner.providers.redis.connection import refusing, server_version
from runner.providers.redis.outages import REFUSED, TRANSIENT_ERRORS, forbidden, format_store_error, remedy
from runner.providers.redis.protocol import PROTOCOL
from runner.tasks import capacity

READERS: tuple[Callable[[], object], ...] = (
    settings.default_queue, settings.worker_labels, settings.WorkerSettings, settings.cache_limit,
    settings.bundle_limit, settings.builds_environments, settings.environment_idle, settings.demo_delay,
    signing.keys, configured, settings.redis_grace, settings.appendfsync,
    lambda: options.check_login(os.environ.get("RUNNER_FLOWER_AUTH")), options.check_broker,
)  # fmt: skip
"""What reads the settings, or raises an error that names one. Others are read where their own finding is made."""

NEWEST = 20  #: runs of which the events are looked at


@dataclass(frozen=True)
class Finding:
    """One finding of `runner doctor`: what was looked at, and how it is."""

    what: str
    found: str
    ok: bool = True
    hint: str = ""
    exit_code: int = int(Exit.FAILED)

    @classmethod
    def of(cls, what: str, error: RunnerError) -> "Finding":
        """Return the finding that something is as the error says."""
        return cls(what, str(error), ok=False, exit_code=int(error.exit_code))

    def as_json(self) -> dict[str, Any]:
        """Return its fields. What is well has no hint, and does not count for the exit code."""
        return {**asdict(self), **({"hint": "", "exit_code": int(Exit.COMPLETED)} if self.ok else {})}


def diagnose() -> list[Finding]:
    """Everything, in the order in which it is needed."""
    findings = [
        Finding(
            "versions",
            f"crew-runner {version('crew-runner')}, Python {platform.python_version()}, Celery {version('celery')}, "
            f"redis-py {version('redis')}",
        ),
        *_settings(),
        _cache(),
        _capacity(),
    ]
    try:
        servers = named_servers()
    except RunnerError as error:
        return [*findings, Finding.of("Redis", error)]
    for server in servers:
        place, many = server.part
        for one in _server(server):
            findings.append(replace(one, what=f"{one.what}, {place + 1} of {many}") if many > 1 else one)
    return findings


def _server(server: Server) -> Iterator[Finding]:
    """Return all findings about one server."""
    try:
        store = server.open()
    except RunnerError as error:
        yield Finding.of("Redis", error)
        return
    with store:
        for look in (
            _redis, _writes, _durability, _eviction, _recovery, _workers, _supervisors, _protocols, _unrecorded, _place,
        ):  # fmt: skip
            try:
                if (found := look(store)) is not None:
                    yield found
            except UsageError:
                continue  # it needs a setting that cannot be read, as is reported already
            except (*TRANSIENT_ERRORS, REFUSED) as error:
                yield _unanswered(error)
                if isinstance(error, TRANSIENT_ERRORS) and not forbidden(error):
                    break  # all else would wait as long again, and hear the same


def _unanswered(error: Exception) -> Finding:
    """Why the server does not tell more."""
    away = isinstance(error, TRANSIENT_ERRORS)
    return Finding(
        "Redis gives no more detail",
        format_store_error(error) if away else str(error),
        ok=False,
        hint=remedy(error) if away else "grant the user in the URL the permissions that docs/operations.md lists",
        exit_code=int(Exit.UNREACHABLE),
    )


def _settings() -> Iterator[Finding]:
    """Return what is wrong with the settings in this process's environment, or which ones are set there."""
    wrong = [Finding("settings", line, ok=False) for line in settings.misspelt()]
    for read in READERS:
        try:
            read()
        except RunnerError as error:
            wrong.append(Finding.of("settings", error))
    named = ", ".join(name for name in settings.KNOWN if os.environ.get(name))
    yield from wrong or [Finding("settings", named or "none is set")]


def _cache() -> Finding:
    folder = settings.cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    return Finding("bundle cache", str(folder), ok=writable, hint="set RUNNER_CACHE_DIR to a writable folder")


def _capacity() -> Finding:
    try:
        return Finding("a worker here takes at once", capacity.described())
    except UsageError as error:
        return Finding.of("a worker here takes at once", error)


def _redis(store: Store) -> Finding:
    kind = "embedded" if store.membership is not None else "named"
    found = ".".join(map(str, server_version(store.client)))
    return Finding("Redis", f"{kind}, {redact_url(store.url)}, command set {found}")


def _writes(store: Store) -> Finding:
    refused = refusing(store.watcher)
    if refused is None:
        return Finding("writes", "taken")
    return Finding(
        "writes",
        f"every task waits for it: {format_store_error(refused)}",
        ok=False,
        hint=f"{remedy(refused)} Runs resume by themselves when that is over.",
    )


def _durability(store: Store) -> Finding:
    info = store.client.info("persistence")
    on = str(info.get("aof_enabled")) == "1"
    return Finding(
        "append-only file",
        "on" if on else "off: restarting Redis would lose runs",
        ok=on,
        hint="start Redis with --appendonly yes",
    )


def _eviction(store: Store) -> Finding:
    policy = str(store.client.info("memory").get("maxmemory_policy", "noeviction"))
    return Finding(
        "eviction", policy, ok=policy == "noeviction", hint="set maxmemory-policy noeviction: eviction would lose runs"
    )


def _recovery(store: Store) -> Finding:
    worker = settings.WorkerSettings()
    sees = store.workers.connected([int(store.client.client_id())]) is not None
    return Finding(
        "a dead worker is detected",
        (f"within 0.1 s if its process died, {worker.lease:g} s if its machine vanished")
        if sees
        else f"after its lease of {worker.lease:g} s: CLIENT LIST is not permitted on this Redis",
    )


def _place(store: Store) -> Finding | None:
    """What is wrong with its place among several servers, if anything is."""
    try:
        store.confirm()
    except UsageError as error:
        return Finding.of("servers", error)
    return None


def _workers(store: Store) -> Finding:
    alive = store.workers.alive()
    listed = ", ".join(_format_worker(w.fields) for w in alive)
    needed = store.membership is None
    return Finding(
        "workers",
        listed or ("none; submit starts one when needed" if not needed else "none"),
        ok=bool(alive) or not needed,
        hint="start one: runner worker",
    )


def _supervisors(store: Store) -> Finding:
    alone = [one.removeprefix("supervisor-").rpartition("-") for one in store.workers.supervisors()]
    return Finding("supervisors without a worker", ", ".join(f"{host}:{pid}" for host, _, pid in alone) or "none")


def _format_worker(fields: Mapping[str, Any]) -> str:
    labels = "".join(f", {one}" for one in fields.get("labels", ()))
    return (
        f"{fields.get('host')}:{fields.get('pid')} ({fields.get('pool')} x {fields.get('concurrency')}, "
        f"queue {fields.get('queue')}, Python {fields.get('python')}{labels})"
    )


def _unrecorded(store: Store) -> Finding:
    """Which calls of models the newest runs made past the journal."""
    runs = store.runs.newest(NEWEST)
    past = Counter[str]()
    for run in runs:
        past.update(unrecorded_in(store.runs.events(run.id)))
    found_parts = f"{format_unrecorded(dict(sorted(past.items())))}, in the newest {counted(len(runs), 'run')}"
    return Finding(
        "calls of models past the journal",
        found_parts if past else "none",
        ok=not past,
        hint="they are made again after a restart: have the client use httpx, aiohttp, requests or urllib3",
        exit_code=0,
    )


def _protocols(store: Store) -> Finding:
    """Which versions live side by side: what each worker reads, and what runs were written by."""
    workers = Counter(max(worker.reads) for worker in store.workers.alive())
    runs = store.runs.protocols()
    waiting = sum(many for number, many in runs.items() if workers and number > max(workers))
    found_parts = [f"this is {PROTOCOL}"]
    found_parts += [f"{many} worker{'s' * (many > 1)} of {number}" for number, many in sorted(workers.items())]
    found_parts += [f"{many} run{'s' * (many > 1)} of {number}" for number, many in sorted(runs.items())]
    return Finding(
        "store protocol",
        ", ".join(found_parts),
        ok=not waiting,
        hint=f"{waiting} of them need{'s' * (waiting == 1)} a worker of a newer version: start one",
    )
