"""Prepares a process before CrewAI is imported or the code of a crew is loaded."""

import asyncio
import contextlib
import fcntl
import gc
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from runner.bundles import context_environ
from runner.bundles.run_dir import HOME, STORAGE, Home, overlay
from runner.core.settings import cache_dir

TESTED = ("1.15.30", "1.16")  #: from, and up to without it: as the extra in pyproject.toml says

#: CrewAI reports to its makers, asks PyPI for newer versions, and takes over signals, unless it is told not to.
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
}

#: What CrewAI keeps in a person's home; a run has its own.
APART = (".crewai", ".config/crewai", ".cache/crewai", ".local/share/crewai")

#: What a task of nearly every crew imports beside CrewAI itself, of which OpenAI's client is half a second. CrewAI has
#: OpenAI count the tokens before a call.
USUAL = (
    "crewai.agents.agent_executor",
    "crewai.llms.cache",
    "crewai.llms.providers.openai.completion",
    "crewai.skills.tool",
    "httpcore",
    "openai.resources.responses.input_tokens",
    "runner.adapters.crewai.adapter",
    "runner.adapters.crewai.build",
    "runner.adapters.crewai.process_reuse",
    "runner.adapters.crewai.discovery",
    "runner.adapters.crewai.program_adapter",
    "runner.adapters.crewai.execute",
    "runner.adapters.crewai.flows",
    "runner.llm.recording.grpc_channel",
    "runner.llm.recording.http_client",
    "runner.llm.recording.httpx_transport",
    "runner.llm.recording.mcp_session",
    "runner.llm.recording.urllib3_transport",
)

#: What a flow imports besides, for the memory that it makes: a second and a half. LanceDB itself starts a thread:
#: see `flow_memory`.
OF_FLOWS = ("lance_namespace_urllib3_client", "lance_namespace")

LOCK_POLL = 0.01

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT)


def quiet() -> None:
    """Switch off CrewAI's telemetry, tracing and version check, unless the environment asks for them."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    # It says so of each lambda. Here checkpoints are not made of objects.
    warnings.filterwarnings("ignore", r"\w+ callbacks cannot be serialized and will prevent checkpointing", UserWarning)


def is_quiet() -> bool:
    """Whether CrewAI's telemetry and tracing, which are the process's, are off."""
    return all(os.environ.get(name) == value for name, value in QUIET.items())


def installed() -> bool:
    """Whether CrewAI is installed."""
    return "crewai" in sys.modules or importlib.util.find_spec("crewai") is not None


def untested() -> str | None:
    """Return a warning if the installed version of CrewAI is not one that was tested; else None."""
    from packaging.version import Version

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("crewai")
        least, less = TESTED
        if not Version(least) <= Version(version) < Version(less):
            return f"CrewAI {version} is installed; this was tested with {least} and later, before {less}"
    return None


_preloaded: set[str] = set()


def _forget_event_loop() -> None:
    """Reset the event loop policy, so ``get_event_loop`` creates a loop even after one was closed in this thread."""
    usual = type(asyncio.get_event_loop_policy())
    asyncio.set_event_loop_policy(usual())


def preload(adapter: str) -> None:
    """Import CrewAI in the process that task processes are forked from, with an empty folder as its home."""
    if not installed() or adapter in _preloaded:
        return
    _preloaded.add(adapter)
    empty = cache_dir() / "empty-home"
    with contextlib.suppress(OSError):
        empty.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _environment(HOME=str(empty)):
        _import()
        for name in (*USUAL, *(OF_FLOWS if adapter == "crewai-flow" else ())):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        with contextlib.suppress(Exception):
            importlib.import_module("runner.adapters.crewai.fork_warmup").make()
        if adapter == "crewai-flow":
            with contextlib.suppress(Exception):
                importlib.import_module("runner.adapters.crewai.flow_memory").share()
    _forget_event_loop()
    gc.collect()
    gc.freeze()  # it stays: forks share it, and it is not collected again


_home: Path | None = None  #: that of the run whose tasks this process does
_real_home = Path()  #: the person's
_tells: list[Callable[[], bool]] = []  #: what tells whether it still is as it began
_shared_as_new: Callable[[], bool] | None = None  #: the same, where runs share it


def is_as_new() -> bool:
    """Whether this process is as good as a new one for the run's next task."""
    return is_unchanged() if _shared_as_new is not None else bool(_tells) and _tells[0]()


def prepare(home: Home) -> None:
    """Prepare a process for the tasks of one run: CrewAI's home, storage and locks are in the run's folder."""
    global _home, _real_home
    folder = home.made()
    if folder == _home:
        _forget_event_loop()
        return
    if _home is not None:
        raise RuntimeError("this process belongs to another run")
    _home = folder
    _real_home = Path(os.environ.get("HOME") or Path.home())
    overlay(_real_home, folder / HOME, APART)
    os.environ["HOME"] = str(folder / HOME)
    os.environ["CREWAI_STORAGE_DIR"] = str(folder / STORAGE)
    if not installed():
        return  # loading the crew says it better
    _import()
    _keep_knowledge(folder / STORAGE)
    _lock_in(folder / LOCKS)
    from runner.adapters.crewai import process_reuse

    watch()
    _tells.append(process_reuse.watch())


def share(home: Home) -> None:
    """Prepare this process for tasks of several runs: each has its home and storage in its own context."""
    global _shared_as_new
    from runner.adapters.crewai import process_reuse

    context_environ.install()
    prepare_shared_task(home)
    nowhere = cache_dir() / "no-run"  # what is kept in no run's context is no run's
    for name in (HOME, STORAGE):
        (nowhere / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ.update(HOME=str(nowhere / HOME), CREWAI_STORAGE_DIR=str(nowhere / STORAGE))
    _shared_as_new = process_reuse.watch(shared=True)


def prepare_shared_task(home: Home) -> None:
    """Point CrewAI's home, storage and locks in this context of a shared process to the run's folder."""
    folder = home.made()
    overlay(_real_home, folder / HOME, APART)
    context_environ.set_variables(HOME=str(folder / HOME), CREWAI_STORAGE_DIR=str(folder / STORAGE))
    (folder / LOCKS).mkdir(mode=0o700, exist_ok=True)
    _locks_here.set(folder / LOCKS)
    if threading.current_thread() is threading.main_thread():  # all others begin without one
        _forget_event_loop()


def is_unchanged() -> bool:
    """Whether a shared process is as it was when it was first shared."""
    return _shared_as_new is not None and _shared_as_new()


def watch() -> None:
    """From here on, nothing is kicked off, reported or asked while a file is read."""
    from runner.adapters.crewai import discovery, event_routing, knowledge

    for one in (discovery, event_routing, knowledge):
        one.watch()


def _import() -> None:
    """Import CrewAI and keep this process's signal handlers, which CrewAI replaces if its telemetry is on."""
    quiet()
    handlers = {signum: handler for signum in _SIGNALS if (handler := signal.getsignal(signum)) is not None}
    try:
        importlib.import_module("crewai")
    finally:
        for signum, handler in handlers.items():
            with contextlib.suppress(ValueError):  # not the main thread, which alone could have set any
                signal.signal(signum, handler)


def _keep_knowledge(storage: Path) -> None:
    """Point CrewAI's knowledge to the run's storage: it reads the path at import, which may precede the run."""
    name = "crewai.rag.chromadb.config"
    if (module := sys.modules.get(name)) is not None and hasattr(module, "DEFAULT_STORAGE_PATH"):
        module.DEFAULT_STORAGE_PATH = str(storage)  # type: ignore[attr-defined]  # `hasattr` says so


LOCKS = "locks"  #: in the folder of a run

_locks: list[Path] = []  #: where this process has them
_locks_here: ContextVar[Path | None] = ContextVar("runner_crewai_locks", default=None)  #: where it is shared


def lock_here() -> None:
    """Keep CrewAI's locks in a folder of this machine's user, for a process that only inspects crews."""
    if not _locks:
        _lock_in(Path(tempfile.gettempdir()) / f"crew-runner-locks-{os.getuid()}")


def _lock_in(folder: Path) -> None:
    """Make CrewAI's locks files in this folder; by default it would use whatever Redis is at REDIS_URL."""
    from crewai_core import lock_store

    folder.mkdir(mode=0o700, exist_ok=True)
    _locks.append(folder)

    @contextlib.contextmanager
    def locked(name: str, *, timeout: float = 120.0, **_: Any) -> Iterator[None]:
        with ((_locks_here.get() or folder) / hashlib.sha256(name.encode()).hexdigest()[:16]).open("a") as lock:
            end = time.monotonic() + timeout
            while not _try_lock(lock.fileno()):
                if time.monotonic() > end:
                    raise TimeoutError(f"another task of the run holds CrewAI's lock {name!r} for {timeout:g} s")
                time.sleep(LOCK_POLL)
            yield

    lock_store.set_lock_backend(locked)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _environment(**names: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
