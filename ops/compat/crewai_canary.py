"""Do crews still send the same requests with a release of CrewAI that is newer than those tested?

    python ops/compat/crewai_canary.py [--strict]

Asks the package index for the newest release. One of the tested range needs nothing more: `tests/worker/adapters` runs
with the newest of those. With a newer one `tests/worker/adapters/test_same_requests.py` runs in an environment made for
it.

`.ci/run` ends with this. It fails nothing: it says loudly what came of it. With ``--strict`` the exit code is 1 if
crews do not send the same. Where no index can be asked it says that, and no more.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from packaging.version import Version

from runner.adapters.crewai.process_setup import TESTED

ROOT = Path(__file__).resolve().parents[2]
TEST = "tests/worker/adapters/test_same_requests.py"
WITHIN = 240  #: seconds for installing it, and again for the test


def newest() -> str | None:
    """The newest release that pip would install here; None if it cannot tell."""
    asked = ["install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps", "--report", "-", "crewai"]
    with contextlib.suppress(subprocess.SubprocessError, OSError, ValueError, LookupError, TypeError):
        done = subprocess.run([*pip(), *asked], capture_output=True, text=True, timeout=120, check=True)
        return str(json.loads(done.stdout)["install"][0]["metadata"]["version"])
    return None


def tried(version: str) -> str:
    """What is wrong with crews on that release; "" for nothing."""
    with tempfile.TemporaryDirectory(prefix="canary-") as name:
        venv.create(name, with_pip=False)
        python = str(Path(name) / "bin" / "python")
        install = [*pip(), "--quiet", "--python", python, "install", "--editable", str(ROOT), f"crewai=={version}"]
        environment = {**os.environ, "RUNNER_TEST_CREWAI_PYTHON": python}
        for what, command in (
            ("it cannot be installed beside what the runner needs", install),
            ("crews do not send the same requests", [sys.executable, "-m", "pytest", "-q", TEST]),
        ):
            with subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process:
                try:
                    said, _ = process.communicate(timeout=WITHIN)
                except subprocess.TimeoutExpired:
                    process.terminate()
                    said, _ = process.communicate()
                    what = f"after {WITHIN} s there is no end to it"
            if process.returncode:
                return f"{what}\n{said[-3000:]}"
    return ""


def pip() -> list[str]:
    """A pip that can install elsewhere: this environment may have none of its own."""
    for python in (sys.executable, getattr(sys, "_base_executable", sys.executable)):
        if not subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
            return [python, "-m", "pip"]
    raise OSError("no pip")


def main(arguments: list[str] | None = None) -> int:
    """Say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="end with 1 if crews do not send the same")
    strict = parser.parse_args(arguments).strict
    version = newest()
    if version is None:
        print("canary: no package index tells which release of CrewAI is the newest; nothing was tried")
        return 0
    if Version(version) < Version(TESTED[1]):
        print(f"canary: CrewAI {version} is the newest, and of the tested range")
        return 0
    print(f"canary: CrewAI {version} is newer than those tested (before {TESTED[1]}); trying it", flush=True)
    if wrong := tried(version):
        line = "=" * 100
        print(f"{line}\nWARNING: CrewAI {version} is out, and {wrong}\n{line}", file=sys.stderr)
        return int(strict)
    print(f"canary: with CrewAI {version} crews send the same requests: widen TESTED in surroundings.py and the extra")
    return 0


if __name__ == "__main__":
    sys.exit(main())
