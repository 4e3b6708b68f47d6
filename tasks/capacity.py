"""How many tasks a worker takes at a time, where nothing is said."""

import os
import resource
from importlib.util import find_spec
from pathlib import Path

from runner.core.errors import UsageError

AT_MOST = 4  #: processes for each core, beside tasks that mostly wait
THREADS = 200  #: the most that are taken by default of tasks that mostly wait
EACH = 4 * 2**20  #: bytes of memory to have for each of these; one that waits needs less than a quarter of it
LEAST = 16
AGENTS = 2000  #: the most that are taken by default where they share a thread
EACH_AGENT = 2**20  #: bytes of memory to have for each of these; one that waits needs a tenth of it
FILES = 256  #: open files to have beside the connection of each of these


def processes() -> int:
    """Tasks that have a process each: one for each core."""
    return os.cpu_count() or 2


def threads(memory: int | None = None) -> int:
    """Tasks that mostly wait: as many as the memory holds, in bytes, which is this machine's if it is not given."""
    return max(LEAST, min(THREADS, (machine_memory() if memory is None else memory) // EACH))


def machine_memory() -> int:
    """The bytes of memory that this machine, or this container, has."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            found = min(found, int(Path(limit).read_text()))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
    return found


def open_files() -> int:
    """How many files a process may have open, once it has raised its own limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return AGENTS + FILES if most == resource.RLIM_INFINITY else most


def agents(memory: int | None = None, files: int | None = None) -> int:
    """Tasks that mostly wait, where they share a thread: as the memory allows, and the files that may be open."""
    by_memory = (machine_memory() if memory is None else memory) // EACH_AGENT
    by_files = (open_files() if files is None else files) - FILES
    return max(LEAST, min(AGENTS, by_memory, by_files))


def described() -> str:
    """What ``runner worker`` takes at once here, in a line."""
    processes, waiting = (one["RUNNER_CONCURRENCY"] for one in parts("auto", None))
    return f"{waiting} tasks that mostly wait, and {processes} with a process each"


def waiting_pool() -> str:
    """The pool of tasks that mostly wait: they share a thread, unless it was said otherwise or cannot be."""
    said = os.environ.get("RUNNER_WAITING_POOL") or "shared"
    if said not in ("shared", "threads"):
        raise UsageError(f"RUNNER_WAITING_POOL must be shared or threads, got {said!r}")
    return said if find_spec("greenlet") is not None else "threads"


def parts(pool: str, concurrency: int | None, servers: int = 1) -> list[dict[str, str]]:
    """The workers that serve together for ``runner worker``, by what differs in their environments.

    "auto" is one for tasks that mostly wait, and one of processes for all others: what begins processes
    has then no tasks in threads, and each pool takes jobs as it has room. Where ``servers`` are served side by side,
    each gets its share, and the means to do one task at least.
    """

    def share(tasks: int) -> str:
        return str(-(-tasks // servers))

    if pool != "auto":
        many = agents() if pool == "shared" else processes()
        return [{"RUNNER_POOL": pool, "RUNNER_CONCURRENCY": share(concurrency or many)}]
    waits = waiting_pool()
    waiting = concurrency or (agents() if waits == "shared" else threads())
    others = min(concurrency or processes(), AT_MOST * processes())
    return [
        {"RUNNER_POOL": "prefork", "RUNNER_SERVES": "process", "RUNNER_CONCURRENCY": share(others)},
        {"RUNNER_POOL": waits, "RUNNER_SERVES": "thread", "RUNNER_CONCURRENCY": share(waiting)},
    ]
