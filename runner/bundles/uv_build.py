"""Builds environments with uv: once per machine, in the cache, under a lock that the build and its uv hold.

The remains of a killed build are never used, and are removed by the next. uv reads indexes and logins from this
machine: ``UV_INDEX_URL`` and the like, or pip's configuration.
"""

import fcntl
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

from runner.bundles import pip_settings
from runner.bundles.environment import LISTED, LOCK, PROJECT, VERSION, Environment
from runner.bundles.runner_wheel import contents, runner_wheel
from runner.core.errors import EnvironmentFailed
from runner.core.processes import end_with_parent
from runner.core.redaction import redact

log = logging.getLogger(__name__)

OWN, FAILED = "RUNNER_ENVIRONMENT", "RUNNER_ENVIRONMENT_FAILED"
"""Where a worker reads which environment it is, and why that could not be built."""

COMPLETE = "complete"  #: the file of an environment that was built to its end; its time is that of the last use
LAST = 6  #: lines of what uv said that are told
TRIES = 3  #: how often it is built before a uv that is killed fails it
_NO_PYTHON = re.compile(r"No (interpreter|download) found|Invalid version request|version `\S+' is not installed")
_DRAWN = re.compile(r"[\u00d7\u2500-\u257f\u25b6]+")  # what uv draws a tree of reasons with


class _UvKilled(EnvironmentFailed):
    """uv was killed from outside."""


def uv() -> str:
    """Return the path of uv: beside this interpreter, or on PATH; "" if there is none."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("uv") or ""


def built(wanted: Environment, cache: Path) -> Path:
    """Return the interpreter of the environment, built if it does not exist. Raises `EnvironmentFailed`."""
    home = folder(wanted, cache)
    python = home / "bin" / "python"
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f"{home.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / COMPLETE).is_file():
            for left in reversed(range(TRIES)):
                shutil.rmtree(home, ignore_errors=True)
                try:
                    _build(wanted, home, cache, lock.fileno())
                    break
                except BaseException as error:
                    shutil.rmtree(home, ignore_errors=True)
                    if not (left and isinstance(error, _UvKilled)):
                        raise
                    log.warning("%s; building it again", error)
            (home / COMPLETE).touch()
        os.utime(home / COMPLETE)
    return python


def folder(wanted: Environment, cache: Path) -> Path:
    """Return the folder of the environment on this machine, for this version of the runner."""
    python = "" if wanted.python else f"-{sys.version_info[0]}.{sys.version_info[1]}"
    return cache.absolute() / "environments" / f"{wanted.digest}-{contents()[0][:8]}{python}"


def _build(wanted: Environment, home: Path, cache: Path, lock: int) -> None:
    began = time.monotonic()
    log.info("building the environment %s of %s", wanted.digest, wanted.named)
    python = wanted.python or sys.executable
    _uv(wanted, lock, "venv", "--no-project", "--python", python, str(home))
    lines = home / "requirements.in"
    into = ("--python", str(home / "bin" / "python"))
    given, options = [str(runner_wheel(cache.absolute()))], pip_settings.options(wanted.folder, os.environ)
    if "--no-binary=:all:" in options:  # with that, uv refuses a wheel that is named, unless it is there
        _uv(wanted, lock, "pip", "install", *into, "--no-deps", *given)
    if wanted.file == LOCK:
        plain = ("--frozen", "--no-dev", "--no-emit-project", "--no-hashes", "--no-header")
        _uv(wanted, lock, "export", *into, *plain, "--output-file", str(lines))
        given += ["--requirements", str(lines)]
    elif wanted.file in (LISTED, PROJECT):
        given += ["--requirements", str(wanted.folder / wanted.file)]
    elif wanted.lines:
        lines.write_text("".join(f"{line}\n" for line in wanted.lines), "utf-8")
        given += ["--requirements", str(lines)]
    _uv(wanted, lock, "pip", "install", *into, *given, *options)
    log.info("built the environment %s of %s in %.1f s", wanted.digest, wanted.named, time.monotonic() - began)


def _uv(wanted: Environment, lock: int, *words: str) -> None:
    """Have uv do it there. It ends with this process, and keeps the lock as long as it lives.

    It begins where this process is: a shim, such as pyenv's, would look for a uv of the Python that the folder names.
    """
    program = uv()
    if not program:
        raise EnvironmentFailed(
            f"{wanted.named} asks for an environment, and there is no uv here to build it: install uv"
        )
    kept = {
        name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    }
    done = subprocess.run(
        [program, "--quiet", "--color", "never", "--directory", str(wanted.folder), *words],
        env={**kept, **pip_settings.for_uv(wanted.folder, kept)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(lock,),
        preexec_fn=partial(end_with_parent, signal.SIGKILL) if threading.active_count() == 1 else None,
        check=False,
    )
    if done.returncode < 0:
        what = f"uv {words[0]} was killed by signal {-done.returncode}, as when memory is short"
        raise _UvKilled(f"the environment of {wanted.named} could not be built: {what}")
    if done.returncode:
        lines = [
            line for one in done.stdout.decode("utf-8", "replace").splitlines() if (line := _DRAWN.sub("", one).strip())
        ]
        said = redact(" ".join(lines[-LAST:])) or f"it ended with {done.returncode}"
        if wanted.python and _NO_PYTHON.search(said):
            raise EnvironmentFailed(
                f"{wanted.named} needs Python {wanted.python}, which {socket.gethostname()} does not have and uv "
                f"cannot get: install it there, or change {VERSION} or requires-python (uv said: {said})"
            )
        raise EnvironmentFailed(f"the environment of {wanted.named} could not be built: uv {words[0]}: {said}")
