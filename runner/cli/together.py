"""Several ``runner`` commands side by side, as ``runner up`` runs them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType


def run_together(commands: list[list[str]], *, tend: Callable[[], None]) -> int:
    """Until a signal, or until one of them ends by itself; then all are asked to end. Returns the exit code."""
    asked: list[int] = []

    def ask(signum: int, _frame: FrameType | None) -> None:
        asked.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, ask)
    children = [
        subprocess.Popen([sys.executable, "-m", "runner", *command], start_new_session=True) for command in commands
    ]
    ended: subprocess.Popen[bytes] | None = None
    while not asked and ended is None:
        time.sleep(0.2)
        tend()
        ended = next((child for child in children if child.poll() is not None), None)
    if ended is not None:
        print(f"error: `{' '.join(commands[children.index(ended)])}` ended with {ended.returncode}", file=sys.stderr)
    for child in children:
        if child.poll() is None:
            child.terminate()
    for child in children:
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return 0 if asked else 1
