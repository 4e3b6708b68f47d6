"""Do the quick tests pass on the other Pythons of this machine?

    python ops/compat/pythons.py [PYTHON ...] [--newest]

PYTHON is an interpreter. Without one it is one of each minor version, 3.11 or newer, that is found on PATH or in
pyenv's folder, but for the version that runs this. An environment is made for each, by uv, with the product and its
test tools. There every module is imported, with warnings as errors, and then ``pytest -m fast`` is run.

`.ci/run` does this with the newest one. Exit code 1 if something fails; 0 where no other Python is found, an
environment cannot be made, or the time is up, which is said.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from runner.bundles.uv_build import uv

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
WITHIN = 300  #: seconds for an environment, and again for its tests
EXTRAS = ("crewai", "litellm", "numpy")  #: what may be missing, with what is imported for it
IMPORTS = """
import importlib, pkgutil, sys
import runner

for found in pkgutil.walk_packages(runner.__path__, "runner."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in sys.argv[1:]:
                raise
"""


def version(python: Path) -> tuple[int, int] | None:
    """The minor version of an interpreter; None if it is none."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor = told.stdout.split()
    return int(major), int(minor)


def others() -> dict[tuple[int, int], Path]:
    """Those of this machine, by minor version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [*sorted(pyenv.glob("versions/*/bin"), reverse=True), *map(Path, os.get_exec_path())]
    found: dict[tuple[int, int], Path] = {}
    for python in (one for place in places for one in sorted(place.glob("python3.[0-9]*"))):
        named = python.name.removeprefix("python3.")
        if named.isdigit() and (at := (3, int(named))) >= OLDEST and at not in (*found, sys.version_info[:2]):
            if version(python) == at:  # not a shim of what is not installed
                found[at] = python
    return dict(sorted(found.items()))


def made(python: Path, folder: Path) -> Path | None:
    """The interpreter of a new environment; None if it could not be made."""
    own = folder / "bin" / "python"
    for command in (
        [uv(), "venv", "-q", "--python", python, folder],
        [uv(), "pip", "install", "-q", "--python", own, "--editable", f"{ROOT}[test]"],
    ):
        try:
            subprocess.run(command, check=True, timeout=WITHIN)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"pythons: no environment for {python}: {error}", flush=True)
            return None
    return own


def passes(python: Path) -> bool:
    """Whether all is imported there without a warning, and the quick tests pass, as far as there is time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    for command in (
        [python, "-W", "error", "-c", IMPORTS, *EXTRAS],
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "fast"],
    ):
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, timeout=WITHIN, check=False)
        except subprocess.TimeoutExpired:
            print(f"pythons: after {WITHIN} s there is no end to it", flush=True)
            return True
        if done.returncode:
            return False
    return True


def main(arguments: list[str] | None = None) -> int:
    """Say what came of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", nargs="*", type=Path, help="an interpreter")
    parser.add_argument("--newest", action="store_true", help="only the newest")
    options = parser.parse_args(arguments)
    found = {version(one): one for one in options.python} if options.python else others()
    failed = 0
    for at in sorted(found)[-1:] if options.newest else sorted(found):
        print(f"pythons: {found[at]}", flush=True)
        with tempfile.TemporaryDirectory(prefix="pythons-") as folder:
            python = made(found[at], Path(folder) / "env")
            failed += python is not None and not passes(python)
    if not found:
        print("pythons: no other is on this machine; nothing was tried")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
