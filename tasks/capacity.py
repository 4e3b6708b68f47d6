"""The default concurrency of a worker, from the cores, memory, open files and threads of its machine."""

import contextlib
import os
import resource
import sys
from importlib.util import find_spec
from pathlib import Path

from runner.core.errors import UsageError
from runner.tasks.descriptors import PLAIN

MOST = "RUNNER_PROCESSES"  #: what says how many processes a worker has at most, with those that wait for a model
SHARED = "RUNNER_SHARED"  #: what says how many tasks it has at most in processes that they share
EACH_SHARED = 4 * 2**20  #: bytes of memory to have for each of these; one that waits needs a third of it
AT_MOST = 4  #: processes for each core, beside tasks that mostly wait
ON_DEMAND = "RUNNER_ON_DEMAND"  #: set for a worker that is started when the next one asks for it
STARTS_PROCESSES = "RUNNER_STARTS_PROCESSES"  #: set for one that asks
THREADS = 200  #: the most that are taken by default of tasks that mostly wait
EACH = 4 * 2**20  #: bytes of memory to have for each of these; one that waits needs less than a quarter of it
LEAST = 16
AGENTS = 2000  #: the most that are taken by default where they share a thread
EACH_AGENT = 2**20  #: bytes of memory to have for each of these; one that waits needs a tenth of it
FILES = 256  #: open files to have beside the connection of each of these
WAITING = 500  #: the most processes that wait for models by default
EACH_WAITING = 40 * 2**20  #: bytes of memory to have for each of these; one that waits has up to 37 MB of its own
ANSWERED = 8 * 2**20  #: bytes more that each of these takes when its answer comes, perhaps all at the same time
OF_MEMORY = 0.75  #: of all memory, what these may have; a worker has a quarter of a gigabyte beside them
FILES_EACH, THREADS_EACH = 8, 16  #: what one of them takes: of the main process's files, and of the user's threads
FILES_SHARED, THREADS_SHARED = 8, 4  #: what one of those that share a process takes: of that one's, and of the user's


def processes() -> int:
    """The number of tasks with a process each: one for each core."""
    return os.cpu_count() or 2


def threads(memory: int | None = None) -> int:
    """The number of tasks that mostly wait: as many as fit into the memory, in bytes (default: this machine's)."""
    return max(LEAST, min(THREADS, (machine_memory() if memory is None else memory) // EACH))


def waiting_processes(memory: int | None = None, files: int | None = None, threads: int | None = None) -> int:
    """Return how many disposable processes may wait for a model: by memory (bytes), open files and threads."""
    by_memory = int((machine_memory() if memory is None else memory) * OF_MEMORY) // EACH_WAITING
    by_files = ((_files() if files is None else files) - PLAIN - FILES) // FILES_EACH
    by_threads = (_threads() if threads is None else threads) // THREADS_EACH
    return max(processes(), min(WAITING, by_memory, by_files, by_threads))


def shared() -> int:
    """The maximum number of this worker's tasks in shared processes (see `runner.tasks.shared_process`)."""
    return int(os.environ.get(SHARED, "0"))


def _shared_tasks(concurrency: int | None, most: int) -> int:
    """As many as memory, open files and threads allow; with an explicit concurrency, the remainder of it."""
    if said := os.environ.get(SHARED):
        if not said.isdigit():
            raise UsageError(f"{SHARED} must be a number of tasks, got {said!r}")
        return int(said)
    by_files, by_threads = (_files() - FILES) // FILES_SHARED, _threads() // THREADS_SHARED
    holds = max(0, min(int(machine_memory() * OF_MEMORY) // EACH_SHARED, by_files, by_threads))
    return min(WAITING if concurrency is None else max(0, concurrency - most), holds)


def needs_files() -> bool:
    """Whether the processes of a pool may need more open files than the default limit."""
    return max(slots() * FILES_EACH, shared() * FILES_SHARED) > PLAIN - FILES


def slots() -> int:
    """The maximum number of concurrent tasks of this worker."""
    return max(int(os.environ.get(name, "0")) for name in ("RUNNER_CONCURRENCY", MOST)) or 2


def has_room(waiting: int, each: int = ANSWERED) -> bool:
    """Whether the machine has memory now for another process, and ``each`` bytes for so many waiting tasks."""
    left = _available()
    return left is None or left > 2 * EACH_WAITING + waiting * each


def machine_memory() -> int:
    """The memory of this machine, or this container, in bytes."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if (said := _number(limit)) is not None:
            found = min(found, said)
    return found


def _available() -> int | None:
    """The available memory in bytes; None if the system does not say."""
    found: int | None = None
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found = int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        lines = (group / "memory.stat").read_text().splitlines()
        cached = int(next(line for line in lines if line.startswith("inactive_file ")).split()[1])
        found = min(most - used + cached, most if found is None else found)
    return found


def open_files() -> int:
    """The maximum number of open files of a process that has raised its own limit."""
    most = _files()
    return AGENTS + FILES if most == sys.maxsize else most


def raise_files() -> None:
    """Raise this process's limit of open files to the maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _files() -> int:
    return _limit(resource.RLIMIT_NOFILE)


def _threads() -> int:
    said = _number("/sys/fs/cgroup/pids.max")
    return min(_limit(resource.RLIMIT_NPROC), sys.maxsize if said is None else said)


def _limit(what: int) -> int:
    _, most = resource.getrlimit(what)
    return sys.maxsize if most == resource.RLIM_INFINITY else most


def _number(file: str) -> int | None:
    try:
        return int(Path(file).read_text())
    except (OSError, ValueError):  # there is none, or it is "max"
        return None


def agents(memory: int | None = None, files: int | None = None) -> int:
    """The number of tasks that mostly wait in a shared thread: limited by memory and open files."""
    by_memory = (machine_memory() if memory is None else memory) // EACH_AGENT
    by_files = (open_files() if files is None else files) - FILES
    return max(LEAST, min(AGENTS, by_memory, by_files))


def described() -> str:
    """Describe the concurrency of ``runner worker`` on this machine in one line."""
    separate, together = parts("auto", None)
    each, waiting = separate["RUNNER_CONCURRENCY"], together["RUNNER_CONCURRENCY"]
    return (
        f"{waiting} tasks that mostly wait, {each} with a process each, up to "
        f"{separate[MOST]} whose process ends with them, while that waits for a model, and beside them up to "
        f"{separate[SHARED]} of crews that call no code of their own, in processes that they share"
    )


def waiting_pool() -> str:
    """The pool for tasks that mostly wait: a shared thread, unless configured otherwise or impossible."""
    said = os.environ.get("RUNNER_WAITING_POOL") or "shared"
    if said not in ("shared", "threads"):
        raise UsageError(f"RUNNER_WAITING_POOL must be shared or threads, got {said!r}")
    return said if find_spec("greenlet") is not None else "threads"


def parts(pool: str, concurrency: int | None, servers: int = 1, *, on_demand: bool = False) -> list[dict[str, str]]:
    """The workers that together serve ``runner worker``, by the differences of their environments.

    "auto" is one for tasks that mostly wait, and one with processes for all others: so a process that forks has no task
    threads, and each pool takes jobs as it has room. With several ``servers``, each gets its share, and at least one
    task. ``on_demand``: that with processes is started when it is needed, if it is one of two.
    """

    def share(tasks: int) -> str:
        return str(-(-tasks // servers))

    if pool != "auto":
        many = concurrency or (agents() if pool == "shared" else processes())
        own = {"RUNNER_POOL": pool, "RUNNER_CONCURRENCY": share(many)}
        if pool != "prefork":
            return [own]
        most = concurrency or waiting_processes()
        return [own | {MOST: share(most), SHARED: share(_shared_tasks(concurrency, most))}]
    waits = waiting_pool()
    waiting = concurrency or (agents() if waits == "shared" else threads())
    others = min(concurrency or processes(), AT_MOST * processes())
    most = max(others, min(concurrency or WAITING, waiting_processes()))
    own = {
        "RUNNER_CONCURRENCY": share(others), MOST: share(most), SHARED: share(_shared_tasks(concurrency, most)),
    }  # fmt: skip
    forks = {"RUNNER_POOL": "prefork", "RUNNER_SERVES": "process", **own}
    other = {"RUNNER_POOL": waits, "RUNNER_SERVES": "thread", "RUNNER_CONCURRENCY": share(waiting)}
    return [forks | {ON_DEMAND: "1"}, other | {STARTS_PROCESSES: "1"}] if on_demand else [forks, other]
