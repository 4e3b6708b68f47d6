"""The README's first command, on a fresh state directory: embedded server, a worker for as long as it is needed."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "stdlib_audit" / "crew.py"


def test_submit_on_the_embedded_server(tmp_path: Path, eventually: Any) -> None:
    state = tmp_path / "state"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNNER_")}
    environment |= {
        "RUNNER_STATE_DIR": str(state),
        "RUNNER_CACHE_DIR": str(tmp_path / "cache"),
        "RUNNER_REDIS_GRACE": "1",
    }
    # A part of the library: all of it is ten seconds of work.
    library = Path(sysconfig.get_path("stdlib")) / "concurrent"
    done = subprocess.run(
        [sys.executable, "-m", "runner", "submit", str(EXAMPLE), "--input", f"root={library}"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# ")
    assert (tmp_path / "stdlib_audit.md").read_text() == done.stdout
    assert "<svg" in (tmp_path / "stdlib_audit.svg").read_text()
    # Nothing stays behind: the worker ends when no run is left, the server when nobody uses it.
    eventually(lambda: not _processes(str(state)), within=40, why="no process is left")


def _processes(state: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if state.encode() in text and int(folder.name) != os.getpid():
            found.append(folder.name)
    return found
