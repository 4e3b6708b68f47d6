"""Settings: from the command line, else the environment, else these defaults. Times are in seconds."""

import functools
import hashlib
import math
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from runner.core.errors import UsageError
from runner.core.plain_text import why_no_name
from runner.core.redaction import withheld

DEFAULT_QUEUE = "runner"
MEMORY = ".memory"  #: the folder among a run's files that a flow remembers in: no part of a bundle


MAX_HANDOVERS = 720  #: in a row, of one task that does not get further; then its run fails
LONGEST_QUEUE = 200  #: bytes of a queue's name: RabbitMQ takes 255, and ours stands before it
LONGEST = 100 * 365 * 86400.0  #: seconds: no time that is given is longer; Redis counts in ms and has room for more
KEEP = 7 * 24 * 3600.0  #: seconds that a finished run is kept
MOST = 1_000_000  #: no count that is given, as of checkpoints, attempts or replicas, is more


def _number(name: str, default: float, least: float, most: float = LONGEST) -> float:
    text = os.environ.get(name)
    if text is None or not text.strip():
        return default
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{name} must be a number, got {text!r}") from None
    if not math.isfinite(value):
        raise UsageError(f"{name} must be a number, got {text!r}")
    if value < least:
        raise UsageError(f"{name} must be at least {least:g}, got {value:g}")
    if value > most:
        raise UsageError(f"{name} must be at most {most:g}, got {value:g}")
    return value


def _count(name: str, default: int, least: int) -> int:
    return int(_number(name, default, least, MOST))


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker; all times are in seconds.

    Attributes:
        lease: how long until a machine that vanished is detected.
        drain_timeout: on SIGTERM, how long a call in flight may take to end.
        max_attempts: how often a task may kill its worker without progress before its run fails.
        stall: a worker that took no job for so long, while jobs waited and it had free processes, restarts.
        wait_replicas, wait_timeout: each commit waits for so many replicas, at most for so long.
        time_slice: how long a process continues with the tasks that its commits make ready; with 0, each task goes
            through the broker.
        model_endpoints: more hosts and paths whose POST requests are model calls.
        idempotent_endpoints: hosts and paths to which tools' POST requests carry an idempotency key.
    """

    lease: float = field(default_factory=lambda: _number("RUNNER_LEASE", 5.0, 0.3))
    drain_timeout: float = field(default_factory=lambda: _number("RUNNER_DRAIN_TIMEOUT", 10.0, 0.0))
    max_attempts: int = field(default_factory=lambda: _count("RUNNER_MAX_ATTEMPTS", 5, 1))
    resend_after: float = field(default_factory=lambda: _number("RUNNER_RESEND_AFTER", 1.0, 0.05))
    wait_replicas: int = field(default_factory=lambda: _count("RUNNER_WAIT_REPLICAS", 0, 0))
    wait_timeout: float = field(default_factory=lambda: min(_number("RUNNER_WAIT_TIMEOUT", 1.0, 0.001), 5.0))
    time_slice: float = field(default_factory=lambda: _number("RUNNER_TIME_SLICE", 0.5, 0.0))
    stall: float = field(default_factory=lambda: _number("RUNNER_STALL", 15.0, 1.0))
    model_endpoints: tuple[str, ...] = field(default_factory=lambda: model_endpoints())
    idempotent_endpoints: tuple[str, ...] = field(default_factory=lambda: idempotent_endpoints())

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return int(self.lease * 1000)

    @property
    def beat(self) -> float:
        """Seconds between two heartbeats: a fifth of the lease, at most one second."""
        return min(1.0, self.lease / 5)


def default_queue(*, embedded: bool = False) -> str:
    """The queue that jobs go to unless told otherwise; ``embedded`` says that the store is the embedded server."""
    return queue_name(os.environ.get("RUNNER_QUEUE") or (embedded_queue() if embedded else DEFAULT_QUEUE))


@functools.cache
def embedded_queue() -> str:
    """The queue of this Python environment on the embedded server.

    All projects of a user share that server, but each environment needs workers with its own libraries.
    """
    environment = f"{os.path.realpath(sys.prefix)} {sys.version_info[:2]}"
    return f"{DEFAULT_QUEUE}-{hashlib.sha256(os.fsencode(environment)).hexdigest()[:8]}"


@functools.lru_cache(maxsize=64)  # a process names few, again and again
def queue_name(name: str) -> str:
    """Return the name if it is valid: not too long, without blanks, and no key of the store. Raises `UsageError`."""
    if why := why_no_name(name, most=LONGEST_QUEUE):
        raise UsageError(f"{name[:80]!r} is not a queue name: it {why}")
    if not name.isprintable() or " " in name:
        raise UsageError(f"{name!r} is not a queue name: it contains blanks")
    if name.startswith("runner:"):
        raise UsageError(f"{name!r} is not a queue name: the prefix runner: is reserved; choose another name")
    return name


def state_dir() -> Path:
    """The folder for data that outlives a process: ``RUNNER_STATE_DIR``, else crew-runner in the user's state folder.

    Raises `RuntimeError` if the user has no home folder.
    """
    if chosen := os.environ.get("RUNNER_STATE_DIR"):
        return Path(chosen).expanduser()
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "crew-runner"


def worker_labels() -> tuple[str, ...]:
    """The labels of a worker, from ``RUNNER_LABELS``, sorted. Raises `UsageError`."""
    found = {label for one in os.environ.get("RUNNER_LABELS", "").split(",") if (label := one.strip())}
    for one in found:
        if not re.fullmatch(r"[\w.=:/-]{1,100}", one):
            raise UsageError(f"{one[:80]!r} is not a label: letters, digits and _ . = : / - are, up to 100")
    return tuple(sorted(found))


def cache_dir() -> Path:
    """The folder for unpacked bundles: ``RUNNER_CACHE_DIR``, else the user's cache folder."""
    given = os.environ.get("RUNNER_CACHE_DIR")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crew-runner"


def bundle_limit() -> int:
    """The maximum size of a bundle, in bytes."""
    return int(_number("RUNNER_BUNDLE_LIMIT", 32 * 2**20, 1))


def cache_limit() -> float:
    """The maximum size of all unpacked bundles on a machine that are not in use, in bytes."""
    return _number("RUNNER_CACHE_LIMIT", 4 * 2**30, 0)


def model_endpoints() -> tuple[str, ...]:
    """Patterns of hosts with paths whose POST requests are model calls, besides the known ones."""
    return _endpoints("RUNNER_MODEL_ENDPOINTS")


def idempotent_endpoints() -> tuple[str, ...]:
    """Patterns of hosts with paths to which POST requests carry the idempotency key of the tool that makes them."""
    return _endpoints("RUNNER_IDEMPOTENT_ENDPOINTS")


def _endpoints(name: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in os.environ.get(name, "").split(",") if one.strip())
    for one in found:
        host, _, path = one.partition("/")
        if not host or not path or re.search(r"[\s?#@]|://", one):
            raise UsageError(
                f"{name} must be hosts with paths like api.example.com/v1/search, separated by commas, got {one!r}"
            )
    return found


def builds_environments() -> bool:
    """Whether workers build the environments that crew files ask for: ``RUNNER_ENVIRONMENTS``."""
    return _choice("RUNNER_ENVIRONMENTS", "on", "off") == "on"


def _choice(name: str, *values: str) -> str:
    """Return which of these values a variable has; the first if it is not set. Raises `UsageError` for another one."""
    given = os.environ.get(name, "").strip().lower() or values[0]
    if given not in values:
        raise UsageError(f"{name} must be {' or '.join(values)}, got {given!r}")
    return given


def redis_grace() -> float:
    """Seconds that the embedded server stays up after its last user has left."""
    return _number("RUNNER_REDIS_GRACE", 30.0, 0.0)


def appendfsync() -> str:
    """When the embedded server syncs its file."""
    return _choice("RUNNER_APPENDFSYNC", "everysec", "always")


def environment_idle() -> float:
    """Seconds without a job after which a worker in an environment of its own exits."""
    return _number("RUNNER_ENVIRONMENT_IDLE", 300.0, 1.0)


def demo_delay() -> float:
    """Seconds that an answer of the demo takes."""
    return _number("RUNNER_DEMO_DELAY", 0.3, 0.0)


def offline_model() -> Path | None:
    """The path of the offline model's weights, if not the default ones."""
    given = os.environ.get("RUNNER_OFFLINE_MODEL")
    return Path(given) if given else None


# -- which there are

KNOWN = (
    "RUNNER_REDIS_URL", "RUNNER_BROKER_URL", "RUNNER_QUEUE", "RUNNER_LABELS", "RUNNER_CACHE_DIR", "RUNNER_CACHE_LIMIT",
    "RUNNER_SHARED_DIR", "RUNNER_PRELOAD", "RUNNER_ENVIRONMENTS", "RUNNER_ENVIRONMENT_IDLE", "RUNNER_BUNDLE_LIMIT",
    "RUNNER_BUNDLE_KEY", "RUNNER_WAITING_POOL", "RUNNER_LEASE", "RUNNER_DRAIN_TIMEOUT", "RUNNER_MAX_ATTEMPTS",
    "RUNNER_STALL", "RUNNER_SHARED", "RUNNER_TIME_SLICE", "RUNNER_WAIT_REPLICAS", "RUNNER_WAIT_TIMEOUT",
    "RUNNER_RESEND_AFTER", "RUNNER_MODEL_ENDPOINTS", "RUNNER_IDEMPOTENT_ENDPOINTS", "RUNNER_PRICES",
    "RUNNER_DEMO_DELAY", "RUNNER_OFFLINE_MODEL", "RUNNER_FLOWER_AUTH", "RUNNER_STATE_DIR", "RUNNER_APPENDFSYNC",
    "RUNNER_REDIS_GRACE", "RUNNER_REDIS_SERVER",
)  # fmt: skip
"""The variables that docs/operations.md lists."""

INTERNAL = frozenset({
    "RUNNER_CONCURRENCY", "RUNNER_POOL", "RUNNER_LOGLEVEL", "RUNNER_WORKER_ID", "RUNNER_EXIT_CODE", "RUNNER_ASKED_FD",
    "RUNNER_SERVES", "RUNNER_PART", "RUNNER_PROCESSES", "RUNNER_REQUESTS_FD", "RUNNER_ON_DEMAND",
    "RUNNER_STARTS_PROCESSES", "RUNNER_ENVIRONMENT", "RUNNER_ENVIRONMENT_FAILED", "RUNNER_ENVIRONMENT_BUNDLE",
    "RUNNER_ENVIRONMENT_FILE", "RUNNER_PARENT_STATE",
})  # fmt: skip
"""The variables that a worker's parent sets for its processes."""


def from_outside() -> dict[str, str]:
    """Return this process's environment without what a worker's parent sets.

    What has such a name comes from a worker that runs this process in a task, or from another program. GitHub Actions
    has a ``RUNNER_ENVIRONMENT``, too.
    """
    return {name: value for name, value in os.environ.items() if name not in INTERNAL}


def misspelt() -> list[str]:
    """Return a line for each variable of the environment that looks like a setting and is none."""
    others = {name for name in os.environ if name.startswith("RUNNER_")}.difference(KNOWN, INTERNAL)
    if not others:
        return []
    import difflib

    known, found = [name.removeprefix("RUNNER_") for name in KNOWN], list[str]()
    for name in sorted(others):
        if near := difflib.get_close_matches(name.removeprefix("RUNNER_"), known, n=1, cutoff=0.8):
            found.append(f"{name} is not a setting: did you mean RUNNER_{near[0]}?")
    return found


# -- those of a worker alone

REQUESTS = "RUNNER_REQUESTS_FD"  #: where it reads which descriptor takes its requests for other workers
WITHHELD = (
    "RUNNER_REDIS_URL", "RUNNER_BROKER_URL", "RUNNER_BUNDLE_KEY", "RUNNER_FLOWER_AUTH",
    "RUNNER_WORKER_ID", "RUNNER_ASKED_FD", REQUESTS, "RUNNER_PART",
    "RUNNER_ON_DEMAND", "RUNNER_STARTS_PROCESSES",
)  # fmt: skip
"""What a task's code starts does not inherit: passwords, and what means something to the worker alone. It may start
anything, such as a shell tool's ``env``, whose output a model then reads."""


def withhold() -> None:
    """Remove these variables from the environment of this process and its forks: of a worker, before its first task."""
    for name in WITHHELD:
        if name in os.environ:
            withheld[name] = os.environ.pop(name)


@overload
def setting(name: str) -> str | None: ...
@overload
def setting(name: str, default: str) -> str: ...
def setting(name: str, default: str | None = None) -> str | None:
    """Return the value of an environment variable, even if it was withheld since."""
    return os.environ.get(name, withheld.get(name, default))
