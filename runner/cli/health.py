"""``runner doctor --worker``: checks one worker by its lease and, on its own machine, by its processes.

Health checks of containers call this twice a minute: it imports little.
"""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from runner.core.errors import Exit, StoreUnreachable, UsageError
from runner.providers.redis.address import several
from runner.providers.redis.connection import check, connect
from runner.providers.redis.partitions import urls_of
from runner.providers.redis.workers import WorkerInfo, Workers

SELF = "self"


@dataclass(frozen=True)
class Health:
    """What was found of it, in words."""

    found: str
    ok: bool
    exit_code: int


def worker_health(which: str) -> Health:
    """Return the health of the worker ``HOST:PID``, or of ``self``: the one whose processes are seen from here.

    Raises `UsageError` if that is none, or several, and `StoreUnreachable`.
    """
    host, pid = _address(which)
    found: dict[str, tuple[WorkerInfo, int]] = {}
    away: StoreUnreachable | None = None
    for url in (one for named in several(os.environ.get("RUNNER_REDIS_URL", "")) for one in urls_of(named)):
        try:
            workers = _workers(url)
        except StoreUnreachable as error:
            away = error
            continue
        now = workers.now()
        for worker in sorted(workers.registered(), key=lambda worker: worker.lapses_at):  # a number may come again
            fields = worker.fields
            here = which != SELF or not Path("/proc/self").exists() or Path(f"/proc/{fields.get('pid')}").exists()
            if fields.get("host") == host and "pid" in fields and pid in (0, fields["pid"]) and here:
                found[f"{host}:{fields['pid']}"] = worker, worker.lapses_at - now
    together = which == SELF and len({_process(worker.fields["pid"])[1] for worker, _ in found.values()}) == 1
    if len(found) > 1 and not together:
        raise UsageError(f"several workers run on {host}; choose one: --worker {' or --worker '.join(sorted(found))}")
    all_well = [_health(name, *one, here=host == socket.gethostname()) for name, one in found.items()]
    if (ill := next((one for one in all_well if not one.ok), None)) is not None:
        return ill
    if away is not None:
        raise away
    if not found:
        lists = "`runner doctor` lists the workers that are"
        why = (
            f"no worker on {host} whose processes are visible here is registered" if which == SELF else "not registered"
        )
        return Health(f"{which}: {why}: {lists}", ok=False, exit_code=int(Exit.FAILED))
    return all_well[0]


def _health(name: str, worker: WorkerInfo, left: int, *, here: bool) -> Health:
    lapsed = f"no heartbeat; its lease expired {-left / 1000:.1f} s ago" if left < 0 else ""
    wrong = lapsed or (_stopped(worker.fields["pid"]) if here else "")
    return Health(
        f"{name}: {wrong or f'alive; its lease is valid for {left / 1000:.1f} s more'}",
        ok=not wrong,
        exit_code=int(Exit.FAILED) if wrong else 0,
    )


def _address(which: str) -> tuple[str, int]:
    if which == SELF:
        return socket.gethostname(), 0
    host, _, pid = which.rpartition(":")
    if not host or not pid.isdigit() or not int(pid):
        raise UsageError(f"--worker takes HOST:PID as `runner doctor` lists it, or self; not {which!r}")
    return host, int(pid)


def _workers(url: str) -> Workers:
    if not url:
        from runner.client.store import open_store  # the embedded server's: it brings much along

        return open_store().workers
    client = connect(url)
    check(client, url)
    return Workers(client)


def _stopped(pid: int) -> str:
    """Which of its processes are stopped, where none works without them; "" for none, or where there is no /proc."""
    state, parent = _process(pid)
    if state in "Tt":
        return f"its main process {pid} is stopped"
    if _process(parent)[0] in "Tt":
        return f"its parent {parent} is stopped"
    children = [int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(tasks).split()]
    if children and all(_process(child)[0] in "Tt" for child in children):
        return f"all processes of its pool are stopped ({len(children)})"
    return ""


def _process(pid: int) -> tuple[str, int]:
    """The state of a process, a letter, and its parent; "-" if it is not there."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (fields[0], int(fields[1])) if len(fields) > 1 else ("-", 0)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
