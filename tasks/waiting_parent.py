"""The parent of workers while it only waits: a program that imports hardly anything, run by its path.

What `runner.tasks.parent` has imported, to fork workers from it, takes 28 MB that no worker uses any more. So once they
run, it becomes this program: the same process, with the same children. It forwards signals to them, and becomes
`runner.tasks.parent` again when one has ended or another is to be started.
"""

import json
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False  # not by `typing`, which takes a megabyte
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

STATE = "RUNNER_PARENT_STATE"  #: where each of the two programs tells the other what it knows
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK = 1000  #: milliseconds


def become(program: list[str], state: "dict[str, Any]") -> None:
    """Become the other program. A signal that comes meanwhile waits until that listens."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    for one in state["pipes"]:
        os.set_inheritable(one, True)
    os.execve(program[0], program, {**os.environ, STATE: json.dumps(state)})


def main() -> int:
    """Wait for the workers. Returns the exit code, once all have ended because this process was asked to."""
    state = json.loads(os.environ[STATE])
    _, told, wanted, _ = state["pipes"]
    running = {os.pidfd_open(one["pid"]): one["pid"] for one in state["workers"] if one["pid"]}
    asked: list[int] = []

    def ask(signum: int, _frame: "FrameType | None") -> None:
        asked.append(signum)
        os.write(told, bytes([signum]) * len(running))
        for pid in list(running.values()):  # once is enough; whoever asks a third time means it
            os.kill(pid, signal.SIGTERM if len(asked) < 3 else signal.SIGKILL)

    for signum in ENDING:
        signal.signal(signum, ask)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    watched = select.poll()
    for one in (wanted, *running):
        watched.register(one, select.POLLIN)
    while not asked:
        ready = {number for number, _ in watched.poll(LOOK)}
        if wanted in ready:
            _take_requests(os.read(wanted, 1 << 16), state)
        is_due = any(not one["pid"] and one["due"] <= time.monotonic() for one in state["workers"])
        if not asked and (is_due or state["requests"] or ready & running.keys()):
            become(state["program"], state)
    watched.unregister(wanted)
    end = time.monotonic() + state["ends_within"]
    while running:
        for number, pid in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[number]
                watched.unregister(number)
            elif time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
        if running:
            watched.poll(LOOK)
    return 0


def _take_requests(lines: bytes, state: "dict[str, Any]") -> None:
    """Keep the requests for the other program, except that one on demand is not needed yet, which is said often."""
    for request in map(json.loads, lines.splitlines()):
        if "digest" in request or request["now"]:
            state["requests"].append(request)
        elif not (one := state["workers"][request["part"] - 1])["pid"]:
            one["due"] = time.monotonic() + state["silent"]


if __name__ == "__main__":
    sys.exit(main())
